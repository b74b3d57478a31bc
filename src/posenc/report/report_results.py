"""The results of an experiment, computed once for the files, the HTML report and the terminal."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from posenc.report.conclusions import conclusions, limitations, missing_runs
from posenc.report.curve_set import CurveSet, select_first_measurement
from posenc.report.curves import accuracy_curves, loss_curves, position_curves
from posenc.report.encoding_styles import line_styles
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
from posenc.report.result_rows import ResultRow, result_rows
from posenc.report.result_tables import accuracy_table, perplexity_tables
from posenc.report.rope_base_figure import perplexity_by_base
from posenc.report.table import Table
from posenc.report.training_tokens_figure import relative_perplexity_by_tokens
from posenc.report.vega_figure import Figure

ResultSet = tuple[CurveSet, Sequence[ResultRow]]
"""Comparable curves, and their rows of a table."""


@dataclass(frozen=True)
class Results:
    """An experiment's curves, with the verdicts, tables, figures and texts computed from them.

    `figures` has all figures for which there is data, each assigned to a section of the report.
    `setup` has pairs of a term and its description. The first `num_main_tables` of the perplexity
    tables have the main measurement, one for each training length.
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


def read_results(folder: Path) -> Results:
    """Read the results of the runs in a folder; raises ConfigError or RunError if it has none."""
    experiment = read_experiment(folder)
    losses, accuracies = loss_curves(experiment), accuracy_curves(experiment)
    loss_rows = [(curves, result_rows(curves)) for curves in losses]
    accuracy_rows = [(curves, result_rows(curves)) for curves in accuracies]
    verdicts = judge_experiment(experiment)
    return Results(
        experiment,
        finding(verdicts, losses, accuracies),
        loss_rows,
        accuracy_rows,
        verdicts,
        perplexity_tables(loss_rows),
        [accuracy_table(*rows) for rows in accuracy_rows],
        len(select_first_measurement(losses)),
        _figures(experiment, losses, accuracies),
        experimental_setup(experiment, [*losses, *accuracies]),
        conclusions(experiment, losses),
        limitations(experiment, losses, accuracies),
        missing_runs(experiment),
    )


def _figures(
    experiment: Experiment, losses: Sequence[CurveSet], accuracies: Sequence[CurveSet]
) -> list[Figure]:
    positions = position_curves(experiment)
    curves = [curve for c in (*losses, *accuracies, *positions) for curve in c.curves]
    styles = line_styles({curve.label: curve.encoding for curve in curves})
    charts = [
        ("tasks", accuracy_by_length(accuracies, styles)),
        ("results", perplexity_by_length(losses, styles)),
        ("relative", relative_perplexity(losses, styles)),
        ("training", relative_perplexity_by_tokens(experiment, styles)),
        ("bases", perplexity_by_base(losses, experiment)),
        ("positions", loss_by_position(positions, styles)),
    ]
    figures = [line_figure(section, chart) for section, chart in charts if chart]
    heat_map = loss_heat_map(positions)
    return [*figures, heat_figure("positions", heat_map)] if heat_map else figures
