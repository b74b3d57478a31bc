"""The experimental setup: the models, data, training and machines behind the results."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from posenc.report.curve_set import PROTOCOL_DESCRIPTIONS, CurveSet, EvaluationKey
from posenc.report.experiment import MACHINE_KEYS, Experiment, Run
from posenc.report.run_labels import flatten, format_setting


def experimental_setup(
    experiment: Experiment, curve_sets: Sequence[CurveSet]
) -> list[tuple[str, str]]:
    """Return the setup as (term, description) pairs."""
    runs = experiment.evaluated
    lengths = _join_distinct((str(run.train_length) for run in runs), ", ")
    parameters = sorted(
        run.config["planned"]["parameters"] or run.status.resolved.get("parameters") or 0
        for run in runs
    )
    sizes = _join_distinct((f"{parameters[0]:,}", f"{parameters[-1]:,}"), " to ")
    training = _join_distinct(
        f"{run.status.tokens:,} tokens per run, {run.config['batch_tokens']:,} tokens per step"
        for run in runs
    )
    data = _join_distinct(
        f"{format_setting(run.config['choices'].get('data'))}"
        f" (data {run.config['planned']['fingerprint'][:8]})"
        for run in runs
    )
    kernels = (f"{r.label}: {format_setting(r.status.resolved.get('kernel'))}" for r in runs)
    return [
        ("Encodings", _join_distinct((run.label for run in runs), ", ")),
        ("Model", f"{describe_choice(runs, 'model')}; {sizes} parameters"),
        ("Training length", f"{lengths} tokens"),
        ("Training", training),
        ("Training data", data),
        ("Tokenizer", describe_choice(runs, "tokenizer")),
        ("Optimizer", "; ".join(describe_choice(runs, key) for key in ("optimizer", "schedule"))),
        *(("Evaluation", line) for line in _evaluations(curve_sets)),
        ("Seeds", _seeds(experiment, curve_sets)),
        ("Precision", _join_distinct(run.config["precision"] for run in runs)),
        ("Machine", _join_distinct(map(_machine, runs))),
        ("Attention kernels", _join_distinct(kernels)),
        ("Dates", _dates(runs)),
        ("posenc", posenc_versions(runs)),
    ]


def describe_choice(runs: Sequence[Run], group: str) -> str:
    """Return the options selected in a config group, with their parameters."""
    choices = []
    for run in runs:
        settings = flatten(run.config.get(group) or {})
        options = ", ".join(f"{path} {format_setting(value)}" for path, value in settings)
        name = format_setting(run.config["choices"].get(group))
        choices.append(f"{name} ({options})" if options else name)
    return _join_distinct(choices)


def posenc_versions(runs: Sequence[Run]) -> str:
    return _join_distinct(format_setting(run.config["planned"]["posenc_version"]) for run in runs)


def data_fingerprints(runs: Sequence[Run]) -> str:
    return _join_distinct(run.config["planned"]["fingerprint"] for run in runs)


def _evaluations(curve_sets: Sequence[CurveSet]) -> list[str]:
    """Describe each evaluation: its data, the number of scored tokens and the protocol."""
    counts: defaultdict[EvaluationKey, set[int]] = defaultdict(set)
    for curves in curve_sets:
        points = (point for curve in curves.curves for point in curve.points)
        counts[curves.evaluation_key].update(point.tokens for point in points)
    lines = []
    for key, scored in counts.items():
        tokens = _join_distinct(f"{count:,}" for count in sorted(scored))
        line = f"{key} (data {key.data[:8]}), {tokens} tokens scored per length"
        _, description = PROTOCOL_DESCRIPTIONS.get(key.protocol, ("", ""))
        lines.append(f"{line}: {description}" if description else line)
    return lines


def _seeds(experiment: Experiment, curve_sets: Sequence[CurveSet]) -> str:
    """Return the seeds that the tables average over, and the runs excluded from some means."""
    points = [p for curves in curve_sets for curve in curves.curves for p in curve.points]
    seeds = {seed for point in points for seed in point.seeds}
    seeds = seeds or {run.seed for run in experiment.evaluated}
    excluded = [
        f"seed {run.seed} of {run.label}"
        for run in experiment.evaluated
        if len(run.comparable_rows) < len(run.rows)
    ]
    reason = (
        "excluded from the means at lengths that were evaluated with a different budget, with"
        " different fixed targets or with a different definition of a custom swap"
    )
    seeds_text = ", ".join(map(str, sorted(seeds)))
    return f"{seeds_text}; {reason}: {', '.join(excluded)}" if excluded else seeds_text


def _machine(run: Run) -> str:
    resolved = run.status.resolved
    names = (name for name in MACHINE_KEYS if name in resolved)
    return ", ".join(f"{name} {format_setting(resolved[name])}" for name in names)


def _dates(runs: Sequence[Run]) -> str:
    timestamps = [t for run in runs for t in (run.status.started, run.status.updated) if t]
    if not timestamps:
        return "unknown"
    first_and_last = (min(timestamps), max(timestamps))
    days = (str(datetime.fromtimestamp(timestamp, UTC).date()) for timestamp in first_and_last)
    return _join_distinct(days, " to ")


def _join_distinct(items: Iterable[str], separator: str = "; ") -> str:
    """Join the distinct items in order of first appearance."""
    return separator.join(dict.fromkeys(items))
