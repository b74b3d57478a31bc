"""How to read a report: what its numbers say, what they cannot bear, and what is missing."""

from collections.abc import Sequence

from posenc.claims.intervals import FEWEST_SEEDS
from posenc.report.collect import Experiment, Run
from posenc.report.curves import Panel
from posenc.report.measured import choice_text
from posenc.report.tables import growth_of, number_text

FEW_WINDOWS = 30
ABOVE_ONE = (
    "A ratio above 1 means that windows longer than those of training make the model worse; at or"
    " below 1, that it bears them."
)
UNKNOWN_NOISE = (
    "differences as small as another seed would make mean nothing, and how small that is was not"
    " measured for them."
)


def conclusions(experiment: Experiment, panels: Sequence[Panel]) -> list[str]:
    """The experiment's own text, then what each panel says in numbers."""
    alike = len({panel.measurement for panel in panels}) == 1
    lines = _texts(experiment.about.get("conclude"))
    for panel in panels:
        where = f"L = {panel.train_length}" + ("" if alike else f", {panel.measurement}")
        lines += [f"{where}: {text}" for text in (*_lowest(panel), *_growths(panel))]
    return [*lines, ABOVE_ONE] if panels else lines


def cautions(experiment: Experiment, panels: Sequence[Panel], tasks: Sequence[Panel]) -> list[str]:
    """The experiment's own text, then what perplexities and accuracies cannot bear."""
    lines = [*_texts(experiment.about.get("caution")), *_seeds([*panels, *tasks])]
    if not panels:
        return lines
    return [
        *lines,
        *_early_tokens(panels),
        *_few_windows(panels),
        f"Perplexity is per token of the tokenizer {choice_text(experiment.measured, 'tokenizer')}:"
        " it can be compared within this report, not with numbers per word or of another"
        " tokenizer. runs.csv has perplexity per word and per byte.",
    ]


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


def _texts(given: str | Sequence[str] | None) -> list[str]:
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


def _seeds(panels: Sequence[Panel]) -> list[str]:
    seeds = {point.seeds for panel in panels for s in panel.series for point in s.points}
    counts = {len(of) for of in seeds}
    lines = []
    if 1 in counts:
        where = "There is one seed" if counts == {1} else "Some numbers rest on one seed"
        lines += [f"{where}, so no interval can be given: {UNKNOWN_NOISE}"]
    if any(1 < count < FEWEST_SEEDS for count in counts):
        lines += [
            f"Bands of fewer than {FEWEST_SEEDS} seeds are the lowest and the highest, not"
            " confidence intervals: differences smaller than the bands are wide mean nothing."
        ]
    if max(counts) >= FEWEST_SEEDS:
        lines += [
            "Each interval is of one mean: two of them may overlap where the difference, taken seed"
            " by seed as for claims, is sure."
        ]
    if len(seeds) > 1:
        lines += ["Not every number rests on the same seeds, so not all comparisons are paired."]
    return lines


def _early_tokens(panels: Sequence[Panel]) -> list[str]:
    """The early-token curse, in numbers (Press et al. 2022, appendix B)."""
    panel = next((p for p in panels if p.measurement.protocol == "nonoverlapping"), None)
    if panel is None or panel.places[-1] <= panel.train_length:
        return []
    half, longest = panel.train_length // 2, panel.places[-1]
    return [
        "Part of a gain at longer windows is not use of longer context but fewer early tokens"
        " (the early-token curse: Press et al. 2022, appendix B). Under nonoverlapping evaluation"
        f" half of all tokens have less than {half} tokens before them in windows of"
        f" {panel.train_length}, and {100 * half / longest:.1f}% in windows of {longest:.0f}."
    ]


def _few_windows(panels: Sequence[Panel]) -> list[str]:
    """The first length from which too few full windows fit into the text, for each data."""
    counts: dict[str, dict[float, int]] = {}
    for panel in panels:
        for series in panel.series:
            of = counts.setdefault(str(panel.measurement), {})
            of.update({point.at: point.count for point in series.points})
    lines = []
    for name, tokens in counts.items():
        few = sorted(at for at in tokens if tokens[at] // at < FEW_WINDOWS)
        if few:
            windows = int(tokens[few[-1]] // few[-1])
            lines.append(
                f"{name}: from {few[0]:.0f} tokens on, fewer than {FEW_WINDOWS} full windows fit"
                f" into the {tokens[few[-1]]:,} tokens that are scored ({windows} of"
                f" {few[-1]:.0f}), and a few passages decide the number."
            )
    return lines
