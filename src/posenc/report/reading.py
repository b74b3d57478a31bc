"""How to read a report: what its numbers say, and what is missing."""

from collections.abc import Sequence

from posenc.report.collect import Experiment, Run
from posenc.report.curves import Panel
from posenc.report.tables import growth_of, number_text

ABOVE_ONE = (
    "A ratio above 1 means that windows longer than those of training make the model worse; at or"
    " below 1, that it bears them."
)


def conclusions(experiment: Experiment, panels: Sequence[Panel]) -> list[str]:
    """The experiment's own text, then what each panel says in numbers."""
    alike = len({panel.measurement for panel in panels}) == 1
    lines = texts(experiment.about.get("conclude"))
    for panel in panels:
        where = f"L = {panel.train_length}" + ("" if alike else f", {panel.measurement}")
        lines += [f"{where}: {text}" for text in (*_lowest(panel), *_growths(panel))]
    return [*lines, ABOVE_ONE] if panels else lines


def missing(experiment: Experiment) -> list[str]:
    """How many runs have no results, then a line for each of them; nothing where all have."""
    lines = [f"{run.name}: {state_of(run)}" for run in experiment.runs if not _complete(run)]
    lines += [f"{name}: planned, not started" for name in experiment.absent]
    total = len(experiment.runs) + len(experiment.absent)
    return [f"{len(lines)} of {total} runs missing:", *lines] if lines else []


def _complete(run: Run) -> bool:
    return bool(run.rows) and run.status.state == "finished"


def state_of(run: Run) -> str:
    error = run.status.error
    return f"{run.status.state}: {error}" if error else run.status.state


def texts(given: str | Sequence[str] | None) -> list[str]:
    """The paragraphs of an experiment's text: one, several or none."""
    return [given.strip()] if isinstance(given, str) else [text.strip() for text in given or ()]


def _lowest(panel: Panel) -> list[str]:
    named = [
        f"{found[0]} at {at} tokens ({number_text(found[1].perplexity)})"
        for at in dict.fromkeys((panel.train_length, int(panel.places[-1])))
        if (found := panel.lowest(at))
    ]
    return [f"perplexity is lowest with {', and with '.join(named)}."]


def _growths(panel: Panel) -> list[str]:
    longest, length = int(panel.places[-1]), panel.train_length
    ratios = {s.label: growth_of(s, length, longest) for s in panel.series}
    known = sorted((ratio, label) for label, ratio in ratios.items() if ratio is not None)
    if longest == length or not known:
        return []
    each = ", ".join(f"{label} {number_text(ratio)}" for ratio, label in known)
    return [f"perplexity at {longest} tokens over that at {length}: {each}."]
