"""The experimental setup: everything that the numbers of a report depend on."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from posenc.report.curves import CurveSet
from posenc.report.evaluation_key import PROTOCOL_TEXTS
from posenc.report.experiment import Experiment, Run
from posenc.report.run_labels import flatten, plain

RESOLVED = ("device", "threads")


def experimental_setup(
    experiment: Experiment, curve_sets: Sequence[CurveSet]
) -> list[tuple[str, str]]:
    """Return (term, description) pairs."""
    runs = experiment.evaluated
    model = f"{describe_choice(runs, 'model')}; {_unique(map(_parameters, runs))} parameters"
    optimizer = f"{describe_choice(runs, 'optimizer')}; {describe_choice(runs, 'schedule')}"
    return [
        ("Encodings", _unique((run.label for run in runs), ", ")),
        ("Model", model),
        ("Training length", f"{_unique((str(run.train_length) for run in runs), ', ')} tokens"),
        ("Training", _unique(map(_budget, runs))),
        ("Training data", _unique(map(_corpus, runs))),
        ("Tokenizer", describe_choice(runs, "tokenizer")),
        ("Optimizer", optimizer),
        *(("Evaluation", text) for text in _evaluations(curve_sets)),
        ("Seeds", _unique((plain(seed) for seed in sorted({run.seed for run in runs})), ", ")),
        ("Precision", _unique(run.config["precision"] for run in runs)),
        ("Machine", _unique(map(_machine, runs))),
        ("Attention kernels", _unique(map(_kernel, runs))),
        ("Dates", _dates(runs)),
        ("posenc", posenc_versions(runs)),
    ]


def describe_choice(runs: Sequence[Run], group: str) -> str:
    """Return the options chosen in a config group, each with its parameters."""
    return _unique(_choice(run, group) for run in runs)


def posenc_versions(runs: Sequence[Run]) -> str:
    return _unique(plain(run.config["frozen"]["posenc"]) for run in runs)


def data_fingerprints(runs: Sequence[Run]) -> str:
    return _unique(run.config["frozen"]["fingerprint"] for run in runs)


def _evaluations(curve_sets: Sequence[CurveSet]) -> list[str]:
    """Return, for each measurement, the data, how many tokens were scored, and how."""
    lines = []
    for measurement in dict.fromkeys(curves.measurement for curves in curve_sets):
        counts = {
            point.tokens
            for curves in curve_sets
            if curves.measurement == measurement
            for curve in curves.curves
            for point in curve.points
        }
        tokens = _unique(f"{count:,}" for count in sorted(counts))
        line = f"{measurement} (data {measurement.data[:8]}), {tokens} tokens scored at each length"
        _, description = PROTOCOL_TEXTS.get(measurement.protocol, ("", ""))
        lines.append(f"{line}: {description}" if description else line)
    return lines


def _choice(run: Run, group: str) -> str:
    options = [f"{path} {plain(value)}" for path, value in flatten(run.config.get(group) or {})]
    name = plain(run.config["choices"].get(group))
    return f"{name} ({', '.join(options)})" if options else name


def _parameters(run: Run) -> str:
    count = run.status.resolved.get("parameters") or run.config["frozen"]["parameters"] or 0
    return f"{count:,}"


def _budget(run: Run) -> str:
    return f"{run.status.tokens:,} tokens per run, {run.config['batch_tokens']:,} tokens per step"


def _corpus(run: Run) -> str:
    frozen, name = run.config["frozen"], plain(run.config["choices"].get("data"))
    return f"{name} (data {frozen['fingerprint'][:8]})"


def _machine(run: Run) -> str:
    resolved = run.status.resolved
    return ", ".join(f"{name} {plain(resolved[name])}" for name in RESOLVED if name in resolved)


def _kernel(run: Run) -> str:
    return f"{run.label}: {plain(run.status.resolved.get('kernel'))}"


def _dates(runs: Sequence[Run]) -> str:
    moments = [t for run in runs for t in (run.status.started, run.status.updated) if t]
    if not moments:
        return "unknown"
    days = (datetime.fromtimestamp(t, UTC).date().isoformat() for t in (min(moments), max(moments)))
    return " to ".join(dict.fromkeys(days))


def _unique(items: Iterable[str], separator: str = "; ") -> str:
    """Return every different item once."""
    return separator.join(dict.fromkeys(items))
