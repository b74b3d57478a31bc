"""The conclusions from an experiment's results, the limitations, and the missing runs."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from math import floor

from posenc.config.errors import plural
from posenc.evaluation.protocols import PROTOCOLS
from posenc.report.confidence import MIN_SEEDS
from posenc.report.curves import CurveSet, evaluation_key
from posenc.report.experiment import Experiment
from posenc.report.experimental_setup import describe_choice
from posenc.report.page import paragraphs
from posenc.report.result_rows import ResultRow, ResultSet, incomparable_lengths
from posenc.report.scale import exp, format_number
from posenc.runs.evaluation_rows import budget_ran_out

MIN_WINDOWS = 30
RATIO_TEXT = (
    "A ratio above 1 means that the model gets worse on windows longer than in training. A ratio of"
    " 1 or below means that it does not, which may be due to fewer early tokens alone."
)
BUDGET_COLUMNS_NOTE = (
    "With this budget, the columns that compare lengths are not reliable: the ratio of the"
    " perplexities at the longest length and at L, “S”, and “early tokens”."
)
UNKNOWN_VARIATION = "seed-to-seed variation was not measured; small differences may be noise."


def conclusions(experiment: Experiment, losses: Sequence[ResultSet]) -> list[str]:
    """Return the YAML file's `interpretation`, the best encodings and the perplexity ratios.

    Ratios between lengths are left out where an evaluation budget left targets unscored, unless all
    lengths scored the same targets.
    """
    several_evaluations = len({curves.evaluation_key for curves, _ in losses}) > 1
    lines = paragraphs(experiment.about, keys=["interpretation"])
    ratios = [
        [] if _lengths_scored_different_targets(experiment, curves) else _ratio_lines(curves)
        for curves, _ in losses
    ]
    for (curves, rows), ratio_lines in zip(losses, ratios, strict=True):
        setting = curves.setting + (f", {curves.evaluation_key}" if several_evaluations else "")
        lines += [f"{setting}: {text}" for text in (best_encodings(curves, rows), *ratio_lines)]
    return [*lines, RATIO_TEXT] if any(ratios) else lines


def limitations(
    experiment: Experiment, losses: Sequence[CurveSet], accuracies: Sequence[CurveSet]
) -> list[str]:
    """Return the `limitations` of the YAML file, then those of the perplexities and accuracies."""
    lines = paragraphs(experiment.about, keys=["limitations"])
    lines += [*_seed_notes([*losses, *accuracies]), *_different_tokens_note(experiment)]
    lines += _code_note(experiment)
    if not losses:
        return lines
    budget = budget_note(experiment)
    return [
        *lines,
        *_ngram_notes(losses),
        *budget,
        *([BUDGET_COLUMNS_NOTE] if budget else []),
        *_early_tokens_note(losses),
        *_few_windows_notes(losses),
        "Perplexity is per token of the tokenizer"
        f" {describe_choice(experiment.evaluated, 'tokenizer')}. It can be compared between"
        " the runs of a table, but not with perplexities per word, on other text or with other"
        " tokenizers. runs.csv has perplexity per word and per byte.",
    ]


def best_encodings(curves: CurveSet, rows: Sequence[ResultRow]) -> str:
    """Return sentences on the encodings with the best mean at L and at the longest length.

    The longest length is the largest at which every encoding has a value or, failing that, the
    largest at which any encoding has one. At a length where the numbers of scored tokens
    differ, no encoding counts as the best. `rows` are the `result_rows` of the curves.
    """
    quantity = curves.quantity
    word = "lowest" if quantity.choose is min else "highest"
    lengths = dict.fromkeys((curves.train_length, _longest_length(curves)))
    incomparable = [length for length in incomparable_lengths(rows) if length in lengths]
    texts_by_label: defaultdict[str, list[str]] = defaultdict(list)
    for length in lengths:
        values = [(row.curve.label, row.values[length]) for row in rows if length in row.values]
        if values and length not in incomparable:
            label, best = next(pair for pair in values if pair[1].best and not pair[1].difference)
            others = sum(value.best for _, value in values) - 1
            number = quantity.format_mean(best.point)
            tied = f", not distinguishable from {plural(others, 'other')}" if others else ""
            texts_by_label[label].append(f"at {length} tokens ({number}{tied})")
    parts = [f"{label} {' and '.join(texts)}" for label, texts in texts_by_label.items()]
    sentences = [f"{quantity.name} is {word} for {', and for '.join(parts)}."] if parts else []
    if incomparable:
        subject = "The values" if parts else "the values"
        lengths_text = " and ".join(map(str, incomparable))
        sentences.append(
            f"{subject} at {lengths_text} tokens cannot be compared, because different numbers of"
            " tokens were scored."
        )
    return " ".join(sentences)


def missing_runs(experiment: Experiment) -> list[str]:
    """Return the number of runs without complete results, then a line for each; empty if none."""
    lines = [
        f"{run.name}: {run.state}"
        for run in experiment.runs
        if not run.rows or run.status.state != "finished"
    ]
    lines += [f"{name}: planned, not started" for name in experiment.not_started]
    lines += [f"{name}: {reason}" for name, reason in experiment.corrupt.items()]
    total = len(experiment.runs) + len(experiment.not_started) + len(experiment.corrupt)
    return [f"{len(lines)} of {total} runs missing or incomplete:", *lines] if lines else []


def _longest_length(curves: CurveSet) -> int:
    """Return the longest length shared by all curves or, failing that, the longest of any curve."""
    shared = [x for x in curves.x_values if all(c.point_at(x) for c in curves.curves)]
    return int((shared or curves.x_values)[-1])


def _ratio_lines(curves: CurveSet) -> list[str]:
    longest, length = _longest_length(curves), curves.train_length
    ratios = sorted(
        (ratio, curve.label)
        for curve in curves.curves
        if (ratio := curves.length_ratio(curve, longest)) is not None
    )
    if longest == length or not ratios:
        return []
    ratios_text = ", ".join(f"{label} {format_number(ratio)}" for ratio, label in ratios)
    return [f"perplexity at {longest} tokens divided by that at {length}: {ratios_text}."]


def _lengths_scored_different_targets(experiment: Experiment, curves: CurveSet) -> bool:
    """Return whether an evaluation budget scored a different part of the text at each length."""
    key = curves.evaluation_key
    if PROTOCOLS[key.protocol].needs_longest_length:  # the targets are the same at all lengths
        return False
    return any(
        budget_ran_out(row)
        and run.train_length == curves.train_length
        and replace(evaluation_key(row), swap=key.swap) == key
        for run, row in experiment.final_rows
    )


def _seed_notes(curve_sets: Sequence[CurveSet]) -> list[str]:
    seeds = {p.seeds for curves in curve_sets for c in curves.curves for p in c.points}
    counts = set(map(len, seeds))
    lines = []
    if 1 in counts:
        subject = "All numbers come" if counts == {1} else "Some numbers come"
        lines += [
            f"{subject} from a single seed and have no interval over seeds: {UNKNOWN_VARIATION}"
        ]
    if any(1 < count < MIN_SEEDS for count in counts):
        lines += [
            f"With fewer than {MIN_SEEDS} seeds, bands span the range over seeds and"
            " are not confidence intervals. Differences smaller than the band are not meaningful."
        ]
    if any(count >= MIN_SEEDS for count in counts):
        lines += [
            "Each interval is for a single mean. Two intervals may overlap even if the paired"
            " difference, on which claims are judged, is significant."
        ]
    if len(seeds) > 1:
        lines += [
            "Not all numbers come from the same seeds; differences are paired by seed and use"
            " only the seeds that both sides have."
        ]
    return lines


def _different_tokens_note(experiment: Experiment) -> list[str]:
    """Return a warning if a protocol scored different tokens in runs of equal training length."""
    hashes = defaultdict(set)
    for run in experiment.evaluated:
        for row in run.rows:
            measurement = (row["data"], row["split"], row["protocol"], row["stride"])
            key = (run.train_length, *measurement, row["length"])
            hashes[key].add(row.get("tokens_hash"))
    lengths = sorted({key[-1] for key, values in hashes.items() if len(values) > 1})
    if not lengths:
        return []
    return [
        f"At {', '.join(map(str, lengths))} tokens, the runs were not all scored on the same tokens"
        " (tokens_hash in runs.csv), for example because an evaluation budget ran out. These"
        " numbers are not comparable. For each measurement, tables and figures show the values from"
        " the most common budget. Where the numbers of scored tokens differ, no value is"
        " marked as the best."
    ]


def _ngram_notes(curve_sets: Sequence[CurveSet]) -> list[str]:
    """Return a note for each training length at which an encoding is worse than a trigram model."""
    lines = []
    for curves in curve_sets:
        if worse := worse_than_trigram(curves):
            lines.append(
                f"L = {curves.train_length}: {', '.join(worse)} had a higher perplexity than a"
                " 3-gram model trained on the same tokens"
                f" ({format_number(exp(curves.ngrams[3]))}): a comparison of models that hardly use"
                " their context says little about encodings. Train on more tokens."
            )
    return lines


def worse_than_trigram(curves: CurveSet) -> list[str]:
    """Return the labels of the encodings that are worse than a trigram model at L."""
    if curves.swapped_encoding or 3 not in curves.ngrams:
        return []
    points = {c.label: c.point_at(curves.train_length) for c in curves.curves}
    return [label for label, point in points.items() if point and point.mean > curves.ngrams[3]]


def _code_note(experiment: Experiment) -> list[str]:
    """Return a note if runs were trained with different files of the posenc package."""
    digests = {run.status.resolved.get("code") for run in experiment.evaluated} - {None}
    if len(digests) < 2:
        return []
    return [
        f"The runs were trained with {len(digests)} versions of posenc's source files (`code` in"
        " status.json). The versions may differ only in comments; a difference that affects"
        " training is not detected."
    ]


def budget_note(experiment: Experiment) -> list[str]:
    """Return a warning if an evaluation budget left targets unscored."""
    rows = [row for _, row in experiment.final_rows if budget_ran_out(row)]
    if not rows:
        return []
    percent = floor(1000 * min(row["count"] / row["full_count"] for row in rows)) / 10
    return [
        f"Because of an evaluation budget, as few as {percent:g}% of the targets were scored."
        " Except with fixed targets, each length scored different targets, so compare encodings at"
        " the same length, but not one length with another."
    ]


def _early_tokens_note(curve_sets: Sequence[CurveSet]) -> list[str]:
    """Return a note on early tokens if there are windows longer than L (Press et al. 2022)."""
    curves = next((c for c in curve_sets if c.evaluation_key.protocol == "nonoverlapping"), None)
    if curves is None or curves.x_values[-1] <= curves.train_length:
        return []
    half, longest = curves.train_length // 2, curves.x_values[-1]
    return [
        "Part of any gain on longer windows comes not from using longer context but from having"
        " fewer early tokens (the early-token curse: Press et al. 2022, appendix B). In"
        f" non-overlapping windows of {curves.train_length} tokens, half of all tokens have at"
        f" most {half} tokens of context; in windows of {longest:.0f} tokens,"
        f" {100 * half / longest:.1f}% do."
    ]


def _few_windows_notes(curve_sets: Sequence[CurveSet]) -> list[str]:
    """Return a warning for each evaluation with too few windows of a given length."""
    counts: defaultdict[str, dict[float, int]] = defaultdict(dict)
    for curves in curve_sets:
        protocol, stride = curves.evaluation_key.protocol, curves.evaluation_key.stride or 1
        for point in (point for curve in curves.curves for point in curve.points):
            targets = stride if protocol in ("last_k", "fixed_target") else point.x
            windows = counts[str(curves.evaluation_key)]
            count = int(point.tokens // targets)
            windows[point.x] = min(count, windows.get(point.x, count))
    lines = []
    for name, windows in counts.items():
        few = sorted(length for length in windows if windows[length] < MIN_WINDOWS)
        if few:
            lines.append(
                f"{name}: at {few[0]:.0f} tokens and above, fewer than {MIN_WINDOWS} full windows"
                f" fit in the evaluated text ({plural(windows[few[-1]], 'window')} of"
                f" {few[-1]:.0f} tokens), so a few passages determine the result."
            )
    return lines
