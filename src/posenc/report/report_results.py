"""The results of an experiment, computed once for the files, the HTML report and the terminal."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from posenc.report.conclusions import conclusions, limitations, missing_runs
from posenc.report.curve_set import CurveSet, select_first_measurement
from posenc.report.curves import accuracy_curves, loss_curves, position_curves
from posenc.report.encoding_styles import line_styles, swap_styles
from posenc.report.experiment import Experiment, read_experiment
from posenc.report.experimental_setup import experimental_setup
from posenc.report.finding import finding
from posenc.report.heat_map import heat_figure
from posenc.report.length_figures import (
    accuracy_by_length,
    perplexity_by_length,
    relative_perplexity,
)
from posenc.report.line_plot import line_figure
from posenc.report.position_figures import loss_by_position, loss_heat_map
from posenc.report.premises import Verdicts, judge_experiment
from posenc.report.result_rows import ResultSet, result_rows
from posenc.report.result_tables import result_tables
from posenc.report.rope_base_figure import perplexity_by_base
from posenc.report.table import Table
from posenc.report.training_tokens_figure import relative_perplexity_by_tokens
from posenc.report.vega_figure import Figure
from posenc.runs.run_directory import SelectRuns


@dataclass(frozen=True)
class Results:
    """An experiment's curves, with the verdicts, tables, figures and texts computed from them.

    The first `num_main_tables` perplexity tables show the main measurement: one for each training
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
    """Read the results of the runs in a folder; raises ConfigError or RunError if it has none."""
    experiment = read_experiment(folder, select)
    losses, accuracies = loss_curves(experiment), accuracy_curves(experiment)
    loss_rows = [(curves, result_rows(curves)) for curves in losses]
    accuracy_rows = [(curves, result_rows(curves)) for curves in accuracies]
    verdicts = judge_experiment(experiment)
    num_main = len(select_first_measurement(losses))
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
    """Return all figures; a figure of swaps follows the same figure of encodings."""
    positions = position_curves(experiment)
    sets = [*losses, *accuracies, *positions]
    encodings = {curves.swapped or c.label: c.encoding for curves in sets for c in curves.curves}
    for run in experiment.evaluated:  # with at_tokens only, as a run interrupted in its evaluation
        if all(row.get("at_tokens") is not None for row in run.rows):
            encodings.setdefault(run.label, run.encoding)
    swaps = [c for curves in sets if curves.swapped for c in curves.curves]
    names, swapped_encodings = dict.fromkeys(c.label for c in swaps), {c.encoding for c in swaps}
    all_styles = {False: line_styles(encodings), True: swap_styles(names, swapped_encodings)}
    figures = []
    for section, make_chart, curve_sets in (
        ("tasks", accuracy_by_length, accuracies),
        ("results", perplexity_by_length, losses),
        ("positions", loss_by_position, positions),
    ):
        for swapped, styles in all_styles.items():
            chart = make_chart([c for c in curve_sets if bool(c.swapped) == swapped], styles)
            figures += [line_figure(section, chart)] if chart else []
    others = {
        "relative": relative_perplexity([c for c in losses if not c.swapped], all_styles[False]),
        "training": relative_perplexity_by_tokens(experiment, all_styles[False]),
        "bases": perplexity_by_base(losses, experiment),
    }
    figures += [line_figure(section, chart) for section, chart in others.items() if chart]
    heat_map = loss_heat_map([curves for curves in positions if not curves.swapped])
    return [*figures, heat_figure("positions", heat_map)] if heat_map else figures
