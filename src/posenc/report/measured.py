"""What was measured: everything that the numbers of a report depend on."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from posenc.report.collect import Experiment, Run
from posenc.report.curves import Panel
from posenc.report.labels import flatten, plain

PROTOCOLS = {
    "nonoverlapping": (
        "the text is cut into windows of the evaluation length, one after the other; every token"
        " is scored once, with what precedes it in its window as context"
    ),
    "by_position": "the windows of nonoverlapping, with a mean for each position in the window",
    "sliding": (
        "a window of the evaluation length that moves on by the stride and scores that many tokens,"
        " the first one all; every token is scored once"
    ),
    "last_k": (
        "the text is cut into windows of the evaluation length, one after the other; of each, as"
        " many tokens as the stride says are scored, the last ones"
    ),
    "fixed_target": (
        "the same tokens at every length, each span of them (the stride) at the end of a window"
    ),
    "tasks": (
        "sequences of the largest size that the evaluation length holds, their answers scored, each"
        " given the answers before it"
    ),
}
MACHINE = ("device", "threads", "kernel")


def measured(experiment: Experiment, panels: Sequence[Panel]) -> list[tuple[str, str]]:
    """(what, its description), in the order in which a reader asks."""
    runs = experiment.measured
    return [
        ("Encodings", once((run.label for run in runs), ", ")),
        ("Model", f"{choice_text(runs, 'model')}; {once(map(parameters_text, runs))} parameters"),
        ("Training length", f"{once((str(run.train_length) for run in runs), ', ')} tokens"),
        ("Training", once(map(_budget, runs))),
        ("Training data", once(map(_corpus, runs))),
        ("Tokenizer", choice_text(runs, "tokenizer")),
        ("Optimizer", f"{choice_text(runs, 'optimizer')}; {choice_text(runs, 'schedule')}"),
        *(("Evaluated on", text) for text in evaluated(panels)),
        ("Seeds", once((plain(seed) for seed in sorted({run.seed for run in runs})), ", ")),
        ("Precision", once(run.config["precision"] for run in runs)),
        ("Machine", once(map(_machine, runs))),
        ("Dates", _dates(runs)),
        ("posenc", once(plain(run.config["frozen"]["posenc"]) for run in runs)),
    ]


def evaluated(panels: Sequence[Panel]) -> list[str]:
    """For each measurement: the data, how many tokens were scored, and how."""
    found: dict[str, None] = {}
    for of in dict.fromkeys(panel.measurement for panel in panels):
        points = [
            point
            for panel in panels
            if panel.measurement == of
            for series in panel.series
            for point in series.points
        ]
        tokens = once(f"{count:,}" for count in sorted({point.count for point in points}))
        how = f": {PROTOCOLS[of.protocol]}" if of.protocol in PROTOCOLS else ""
        found[f"{of} (data {of.data[:8]}), {tokens} tokens scored at each length{how}"] = None
    return list(found)


def choice_text(runs: Sequence[Run], group: str) -> str:
    """The options chosen in a config group, each with its knobs."""
    return once(_choice(run, group) for run in runs)


def parameters_text(run: Run) -> str:
    count = run.status.resolved.get("parameters") or run.config["frozen"]["parameters"] or 0
    return f"{count:,}"


def _choice(run: Run, group: str) -> str:
    knobs = [f"{path} {plain(value)}" for path, value in flatten(run.config.get(group) or {})]
    name = plain(run.config["choices"].get(group))
    return f"{name} ({', '.join(knobs)})" if knobs else name


def _budget(run: Run) -> str:
    batch = run.config["batch_tokens"]
    return f"{run.status.tokens:,} tokens a run, {batch:,} tokens a step"


def _corpus(run: Run) -> str:
    frozen, name = run.config["frozen"], plain(run.config["choices"].get("data"))
    return f"{name} (data {frozen['fingerprint'][:8]})"


def _machine(run: Run) -> str:
    resolved = run.status.resolved
    return ", ".join(f"{name} {plain(resolved[name])}" for name in MACHINE if name in resolved)


def _dates(runs: Sequence[Run]) -> str:
    moments = [t for run in runs for t in (run.status.started, run.status.updated) if t]
    if not moments:
        return "unknown"
    days = (datetime.fromtimestamp(t, UTC).date().isoformat() for t in (min(moments), max(moments)))
    return " to ".join(dict.fromkeys(days))


def once(items: Iterable[str], between: str = "; ") -> str:
    """Every different item once."""
    return between.join(dict.fromkeys(items))
