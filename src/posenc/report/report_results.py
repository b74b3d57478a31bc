"""The results of an experiment, computed once for the files, the HTML report and the terminal."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from posenc.report.curves import CurveSet, accuracy_curves, loss_curves, position_curves
from posenc.report.encoding_styles import line_styles
from posenc.report.experiment import Experiment, read_experiment
from posenc.report.heat_map import heat_figure
from posenc.report.judge import Verdict, judge
from posenc.report.length_figures import (
    accuracy_by_length,
    perplexity_by_length,
    relative_perplexity,
)
from posenc.report.line_plot import line_figure
from posenc.report.position_figures import loss_by_position, loss_heat_map
from posenc.report.result_tables import accuracy_table, perplexity_table
from posenc.report.rope_base_figure import perplexity_by_base
from posenc.report.speed_figure import cost_against_quality
from posenc.report.table import Table
from posenc.report.vega_figure import Figure


@dataclass(frozen=True)
class Results:
    """An experiment's curves, with the verdicts, tables and figures computed from them."""

    experiment: Experiment
    losses: Sequence[CurveSet]
    accuracies: Sequence[CurveSet]
    positions: Sequence[CurveSet]

    @cached_property
    def verdicts(self) -> list[Verdict]:
        return judge(self.experiment.claims, self.experiment)

    @cached_property
    def perplexity_tables(self) -> list[Table]:
        return [perplexity_table(curves) for curves in self.losses]

    @cached_property
    def accuracy_tables(self) -> list[Table]:
        return [accuracy_table(curves) for curves in self.accuracies]

    @cached_property
    def figures(self) -> list[Figure]:
        """All figures for which there is data, each assigned to a section of the report."""
        curve_sets = [*self.losses, *self.accuracies, *self.positions]
        curves = [curve for curve_set in curve_sets for curve in curve_set.curves]
        styles = line_styles({curve.label: curve.encoding for curve in curves})
        charts = [
            ("tasks", accuracy_by_length(self.accuracies, styles)),
            ("results", perplexity_by_length(self.losses, styles)),
            ("results", relative_perplexity(self.losses, styles)),
            ("bases", perplexity_by_base(self.losses, self.experiment)),
            ("positions", loss_by_position(self.positions, styles)),
            ("cost", cost_against_quality(self.losses, styles, self.experiment)),
        ]
        figures = [line_figure(section, chart) for section, chart in charts if chart]
        heat_map = loss_heat_map(self.positions)
        return [*figures, heat_figure("positions", heat_map)] if heat_map else figures


def read_results(folder: Path) -> Results:
    """Read the results of the runs in a folder; raises ConfigError or RunError if it has none."""
    experiment = read_experiment(folder)
    return Results(
        experiment,
        loss_curves(experiment),
        accuracy_curves(experiment),
        position_curves(experiment),
    )
