"""The results of an experiment, computed once for the files, the HTML report and the terminal.

The HTML report and the terminal output begin with the finding: a summary in a few sentences.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from posenc.config.errors import plural
from posenc.report.conclusions import (
    best_encodings,
    conclusions,
    limitations,
    missing_runs,
    worse_than_trigram,
)
from posenc.report.confidence import MIN_SEEDS
from posenc.report.curve_set import CurveSet, select_main_evaluation
from posenc.report.curves import accuracy_curves, loss_curves, position_curves
from posenc.report.encoding_styles import (
    UNSWAPPED_STYLE,
    encoding_styles,
    line_styles,
    swap_styles,
)
from posenc.report.experiment import Experiment, read_experiment
from posenc.report.experiment_figures import perplexity_by_base, relative_perplexity_by_tokens
from posenc.report.experimental_setup import experimental_setup
from posenc.report.heat_map import heat_figure
from posenc.report.judge import Verdict, Verdicts, judge_experiment
from posenc.report.length_figures import (
    accuracy_by_length,
    perplexity_by_length,
    relative_perplexity,
)
from posenc.report.line_plot import line_figure
from posenc.report.position_figures import loss_by_position, loss_heat_map
from posenc.report.result_rows import ResultSet, result_rows
from posenc.report.result_tables import result_tables
from posenc.report.table import Table
from posenc.report.vega_figure import Figure
from posenc.report.verdicts import affected_lengths, claim_outcomes, summary
from posenc.runs.run_directory import SelectRuns

DEBUG_TEXT = "This report includes debug runs, whose results are not meaningful."
MAX_NAMES = 3
"""The maximum number of encodings that a sentence names; if there are more, it only counts them."""


@dataclass(frozen=True)
class Results:
    """An experiment's curves, with the verdicts, tables, figures and texts computed from them.

    The first `num_main_tables` perplexity tables show the main evaluation: one for each training
    length, and one for each encoding with swaps. `figures` has all figures for which there is data,
    each assigned to a section of the report. `setup` has pairs of a term and its description.
    """

    experiment: Experiment
    finding: str
    losses: Sequence[ResultSet]
    accuracies: Sequence[ResultSet]
    verdicts: Verdicts
    perplexity_tables: Sequence[Table]
    accuracy_tables: Sequence[Table]
    num_main_tables: int
    figures: Sequence[Figure]
    setup: Sequence[tuple[str, str]]
    conclusions: Sequence[str]
    limitations: Sequence[str]
    missing: Sequence[str]


def read_results(folder: Path, select: SelectRuns | None = None) -> Results:
    """Read the results of the runs in a folder; raises the same errors as `read_experiment`."""
    experiment = read_experiment(folder, select)
    losses, accuracies = loss_curves(experiment), accuracy_curves(experiment)
    loss_rows = [(curves, result_rows(curves)) for curves in losses]
    accuracy_rows = [(curves, result_rows(curves)) for curves in accuracies]
    verdicts = judge_experiment(experiment)
    num_main = len(select_main_evaluation(losses))
    return Results(
        experiment,
        finding(experiment, verdicts, loss_rows[:num_main], accuracy_rows),
        loss_rows,
        accuracy_rows,
        verdicts,
        result_tables(loss_rows),
        result_tables(accuracy_rows),
        num_main,
        _figures(experiment, losses, accuracies),
        experimental_setup(experiment, [*losses, *accuracies]),
        conclusions(experiment, loss_rows),
        limitations(experiment, losses, accuracies),
        missing_runs(experiment),
    )


def _figures(
    experiment: Experiment, losses: Sequence[CurveSet], accuracies: Sequence[CurveSet]
) -> list[Figure]:
    """Return all figures; curves are drawn once for the encodings and once for the swaps."""
    positions = position_curves(experiment)
    sets = [*losses, *accuracies, *positions]
    encodings = {
        curves.swapped_encoding or c.label: c.encoding for curves in sets for c in curves.curves
    }
    # A run that was interrupted during its evaluation may have only rows with at_tokens, which are
    # not part of any of these curve sets.
    for run in experiment.evaluated:
        if all(row.get("at_tokens") is not None for row in run.comparable_rows):
            encodings.setdefault(run.label, run.encoding)
    swaps = [c for curves in sets if curves.swapped_encoding for c in curves.curves]
    styles, swapped = encoding_styles(encodings.values()), {c.encoding for c in swaps}
    unswapped = styles[swapped.pop()] if len(swapped) == 1 else UNSWAPPED_STYLE
    names = dict.fromkeys(c.label for c in swaps)
    all_styles = {False: line_styles(encodings), True: swap_styles(names, unswapped)}
    figures = []
    for section, make_chart, curve_sets in (
        ("tasks", accuracy_by_length, accuracies),
        ("results", perplexity_by_length, losses),
        ("positions", loss_by_position, positions),
    ):
        for swapped, styles in all_styles.items():
            chart = make_chart(
                [c for c in curve_sets if bool(c.swapped_encoding) == swapped], styles
            )
            figures += [line_figure(section, chart)] if chart else []
    others = {
        "relative": relative_perplexity(
            [c for c in losses if not c.swapped_encoding], all_styles[False]
        ),
        "training": relative_perplexity_by_tokens(experiment, all_styles[False]),
        "bases": perplexity_by_base(losses, experiment),
    }
    figures += [line_figure(section, chart) for section, chart in others.items() if chart]
    heat_map = loss_heat_map([curves for curves in positions if not curves.swapped_encoding])
    return [*figures, heat_figure("positions", heat_map)] if heat_map else figures


def finding(
    experiment: Experiment,
    verdicts: Verdicts,
    losses: Sequence[ResultSet],
    accuracies: Sequence[ResultSet],
) -> str:
    """Return a few sentences: how many premises and claims hold, and which encodings are best.

    `losses` are those of the main evaluation, `accuracies` those of all tasks. Premises that do
    not hold and encodings that are worse than a trigram model come before the claims. Encodings are
    compared at the training length and at the longest evaluation length; this comparison comes
    before the claims only if no claim has enough seeds.
    """
    claims, best = verdicts.claims, [*_best_sentences(losses, accuracies)]
    count = plural(len(claim_outcomes(claims)), "claim")
    claims_and_best = [f"{count}: {summary(claims)}.", *best] if claims else best
    if claims and all(verdict.outcome == "too few seeds" for verdict in claims):
        claims_and_best = [*best, f"Judging the {count} requires at least {MIN_SEEDS} seeds."]
    sentences = [
        *([DEBUG_TEXT] if any(run.config.get("debug") for run in experiment.runs) else ()),
        *_premise_sentences(verdicts.premises),
        *_trigram_sentences(losses),
        *claims_and_best,
    ]
    return " ".join(sentences)


def _premise_sentences(premises: Sequence[Verdict]) -> Iterator[str]:
    outcomes = claim_outcomes(premises)
    unmet = [
        (outcome, f"“{group[0].claim.statement}” {affected_lengths(outcome, group)}".rstrip())
        for outcome, group in outcomes
        if outcome != "holds"
    ]
    if unmet:
        count = f"{len(unmet)} of {len(outcomes)} premises are not met"
        count = "The premise is not met" if len(outcomes) == 1 else count
        if len({outcome for outcome, _ in unmet}) == 1:
            yield f"{count} ({unmet[0][0]}): {'; '.join(text for _, text in unmet)}."
        else:
            yield f"{count}: {'; '.join(f'{text} ({outcome})' for outcome, text in unmet)}."
    elif outcomes:
        subject = {1: "The premise holds", 2: "Both premises hold"}
        yield f"{subject.get(len(outcomes), f'All {len(outcomes)} premises hold')}."


def _trigram_sentences(losses: Sequence[ResultSet]) -> Iterator[str]:
    for curves, _ in losses:
        if worse := worse_than_trigram(curves):
            verb = "is" if len(worse) == 1 else "are"
            subject = f"{len(worse)} of {plural(len(curves.curves), 'encoding')} {verb}"
            names = f" ({', '.join(worse)})" if len(worse) <= MAX_NAMES else ""
            yield f"L = {curves.train_length}: {subject} worse than the 3-gram model{names}."


def _best_sentences(losses: Sequence[ResultSet], accuracies: Sequence[ResultSet]) -> Iterator[str]:
    for curves, rows in [pair for pair in losses if not pair[0].swapped_encoding] or losses:
        yield f"{curves.setting}: {best_encodings(curves, rows)}"
    for curves, rows in accuracies:
        task = curves.evaluation_key.data_name
        yield f"{task}, L = {curves.train_length}: {best_encodings(curves, rows)}"
