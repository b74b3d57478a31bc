"""What the numbers of a report cannot bear."""

from collections import defaultdict
from collections.abc import Sequence

from posenc.claims.intervals import FEWEST_SEEDS
from posenc.report.collect import Experiment
from posenc.report.curves import Panel
from posenc.report.measured import choice_text
from posenc.report.reading import texts

FEW_WINDOWS = 30
UNKNOWN_NOISE = (
    "differences as small as another seed would make mean nothing, and how small that is was not"
    " measured for them."
)


def cautions(experiment: Experiment, panels: Sequence[Panel], tasks: Sequence[Panel]) -> list[str]:
    """The experiment's own text, then what perplexities and accuracies cannot bear."""
    lines = [*texts(experiment.about.get("caution")), *_seeds([*panels, *tasks])]
    lines += _other_tokens(experiment)
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


def _other_tokens(experiment: Experiment) -> list[str]:
    """The lengths at which runs were scored on different tokens under one protocol."""
    seen = defaultdict(set)
    for run in experiment.measured:
        for row in run.rows:
            what = (row["data"], row["split"], row["protocol"], row["stride"], row["length"])
            seen[what].add(row.get("tokens_hash"))
    lengths = sorted({what[-1] for what, hashes in seen.items() if len(hashes) > 1})
    if not lengths:
        return []
    named = ", ".join(map(str, lengths))
    return [
        f"At {named} tokens not all runs were scored on the same tokens (tokens_hash in runs.csv),"
        " as where a budget cut one of them short: those numbers do not compare."
    ]


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
