"""Conclusions that the numbers of a report allow, and their limitations."""

from collections import defaultdict
from collections.abc import Sequence

from posenc.report.claim import MIN_SEEDS
from posenc.report.curves import CurveSet
from posenc.report.experiment import Experiment
from posenc.report.experimental_setup import describe_choice
from posenc.report.result_tables import number_text

MIN_WINDOWS = 30
RATIO = (
    "Ratio above 1: the model gets worse on windows longer than those of training. 1 or below: it"
    " extrapolates."
)
UNKNOWN_VARIATION = "seed-to-seed variation was not measured; small differences may be noise."


def conclusions(experiment: Experiment, curve_sets: Sequence[CurveSet]) -> list[str]:
    """Return the experiment's own text, then the lowest perplexities and the ratios to L."""
    several = len({curves.measurement for curves in curve_sets}) > 1
    lines = _paragraphs(experiment.about.get("conclude"))
    for curves in curve_sets:
        where = f"L = {curves.train_length}" + (f", {curves.measurement}" if several else "")
        lines += [f"{where}: {text}" for text in (*_lowest(curves), *_ratios(curves))]
    return [*lines, RATIO] if curve_sets else lines


def limitations(
    experiment: Experiment, losses: Sequence[CurveSet], accuracies: Sequence[CurveSet]
) -> list[str]:
    """Return the experiment's own text, then what its perplexities and accuracies cannot show."""
    lines = _paragraphs(experiment.about.get("caution"))
    lines += [*_seeds([*losses, *accuracies]), *_different_tokens(experiment)]
    if not losses:
        return lines
    return [
        *lines,
        *_early_tokens(losses),
        *_few_windows(losses),
        "Perplexity is per token of the tokenizer"
        f" {describe_choice(experiment.evaluated, 'tokenizer')}: comparable within this report, not"
        " with perplexities per word or of another tokenizer. runs.csv has perplexity per word and"
        " per byte.",
    ]


def missing_runs(experiment: Experiment) -> list[str]:
    """Return how many runs have no results, then a line for each; nothing where all have."""
    lines = [
        f"{run.name}: {run.state}"
        for run in experiment.runs
        if not run.rows or run.status.state != "finished"
    ]
    lines += [f"{name}: planned, not started" for name in experiment.absent]
    total = len(experiment.runs) + len(experiment.absent)
    return [f"{len(lines)} of {total} runs missing:", *lines] if lines else []


def _paragraphs(text: str | Sequence[str] | None) -> list[str]:
    """Return the paragraphs of an experiment's text: one, several or none."""
    return [text.strip()] if isinstance(text, str) else [part.strip() for part in text or ()]


def _lowest(curves: CurveSet) -> list[str]:
    lowest = []
    for length in dict.fromkeys((curves.train_length, int(curves.places[-1]))):
        points = [(c.label, point) for c in curves.curves if (point := c.at(length))]
        if points:
            label, best = min(points, key=lambda pair: pair[1].mean)
            lowest.append(f"{label} at {length} tokens ({number_text(best.perplexity)})")
    return [f"perplexity is lowest with {', and with '.join(lowest)}."]


def _ratios(curves: CurveSet) -> list[str]:
    longest, length = int(curves.places[-1]), curves.train_length
    pairs = ((curve.label, curve.at(longest), curve.at(length)) for curve in curves.curves)
    ratios = sorted((far.perplexity / near.perplexity, c) for c, far, near in pairs if far and near)
    if longest == length or not ratios:
        return []
    listed = ", ".join(f"{label} {number_text(ratio)}" for ratio, label in ratios)
    return [f"perplexity at {longest} tokens divided by that at {length}: {listed}."]


def _seeds(curve_sets: Sequence[CurveSet]) -> list[str]:
    seeds = {p.seeds for curves in curve_sets for c in curves.curves for p in c.points}
    counts = {len(group) for group in seeds}
    lines = []
    if 1 in counts:
        where = "There is one seed" if counts == {1} else "Some numbers come from one seed"
        lines += [f"{where}, so there is no interval: {UNKNOWN_VARIATION}"]
    if any(1 < count < MIN_SEEDS for count in counts):
        lines += [
            f"With fewer than {MIN_SEEDS} seeds a band runs from the lowest to the highest seed; it"
            " is not a confidence interval. Differences smaller than the band are not meaningful."
        ]
    if max(counts) >= MIN_SEEDS:
        lines += [
            "Each interval is for one mean. Two intervals may overlap although their paired"
            " difference, which the claims use, is significant."
        ]
    if len(seeds) > 1:
        lines += ["The numbers have different seeds, so not all comparisons are paired."]
    return lines


def _different_tokens(experiment: Experiment) -> list[str]:
    """Return the lengths at which runs were scored on different tokens under one protocol."""
    hashes = defaultdict(set)
    for run in experiment.evaluated:
        for row in run.rows:
            key = (row["data"], row["split"], row["protocol"], row["stride"], row["length"])
            hashes[key].add(row.get("tokens_hash"))
    lengths = sorted({key[-1] for key, values in hashes.items() if len(values) > 1})
    if not lengths:
        return []
    return [
        f"At {', '.join(map(str, lengths))} tokens the runs were not all scored on the same tokens"
        " (tokens_hash in runs.csv), as when a budget cut one of them short: these numbers are not"
        " comparable."
    ]


def _early_tokens(curve_sets: Sequence[CurveSet]) -> list[str]:
    """Return the early-token curse in numbers (Press et al. 2022, appendix B)."""
    blocks = (c for c in curve_sets if c.measurement.protocol == "nonoverlapping")
    curves = next(blocks, None)
    if curves is None or curves.places[-1] <= curves.train_length:
        return []
    half, longest = curves.train_length // 2, curves.places[-1]
    return [
        "Part of a gain at longer windows is not use of longer context but fewer early tokens (the"
        " early-token curse: Press et al. 2022, appendix B). In non-overlapping windows of"
        f" {curves.train_length} tokens half of all tokens have fewer than {half} tokens of"
        f" context; in windows of {longest:.0f} it is {100 * half / longest:.1f}%."
    ]


def _few_windows(curve_sets: Sequence[CurveSet]) -> list[str]:
    """Return, for each measurement, the length from which too few windows fit into the text."""
    counts: dict[str, dict[float, int]] = {}
    for curves in curve_sets:
        for curve in curves.curves:
            scored = counts.setdefault(str(curves.measurement), {})
            scored.update({point.at: point.tokens for point in curve.points})
    lines = []
    for name, tokens in counts.items():
        few = sorted(length for length in tokens if tokens[length] // length < MIN_WINDOWS)
        if few:
            count = tokens[few[-1]]
            lines.append(
                f"{name}: from {few[0]:.0f} tokens on, fewer than {MIN_WINDOWS} full windows fit"
                f" into the {count:,} scored tokens ({count // few[-1]:.0f} windows of"
                f" {few[-1]:.0f}), so that a few passages decide the number."
            )
    return lines
