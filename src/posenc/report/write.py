"""From a folder of runs to its report."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from rich.console import Console

from posenc.claims.evidence import Evidence
from posenc.claims.judge import judge
from posenc.claims.verdict import Verdict
from posenc.config.errors import RunError
from posenc.record.figure import png, svg
from posenc.record.files import write_atomic
from posenc.report import formats, latex, verdict_formats
from posenc.report.charts import Chart
from posenc.report.collect import Experiment, read_experiment
from posenc.report.curves import Panel, length_panels, position_panels
from posenc.report.figures import draw
from posenc.report.page import page
from posenc.report.published import beside
from posenc.report.reading import missing
from posenc.report.style import styles
from posenc.report.tables import table_of
from posenc.report.terminal import show
from posenc.report.verdicts import lines_of, summary


def write_report(folder: Path, console: Console, *, strict: bool = False) -> Path:
    """Write `folder`/report/ from the runs in `folder`, print it, and return its index.html.

    ConfigError where `folder` holds no runs; RunError where none of them has been evaluated, and
    if `strict`, once all is written, where a claim fails.
    """
    experiment = read_experiment(folder)
    panels = length_panels(experiment)
    tables = [table_of(panel, beside(panel, experiment)) for panel in panels]
    evidence = Evidence(experiment.runs, experiment.command, experiment.folder)
    verdicts = judge(experiment.claims, evidence)
    charts = _charts(experiment, panels)
    looks = styles([panel for chart in charts for panel in chart.panels])
    made: dict[str, str | bytes] = {
        **_claims(verdicts),
        "extrapolation.csv": formats.to_csv(tables),
        "extrapolation.md": formats.to_markdown(tables, missing(experiment)),
        "extrapolation.tex": latex.extrapolation_latex(tables),
        "runs.csv": formats.runs_csv(experiment),
    }
    for chart in charts:
        made[f"{chart.file}.csv"] = formats.points_csv(chart.panels, chart.at)
        drawn = partial(draw, chart, looks)
        made[f"{chart.file}.png"] = png(drawn)
        made[f"{chart.file}.svg"] = svg(drawn, chart.title)
    index = folder / "report" / "index.html"
    for name, data in made.items():
        write_atomic(index.with_name(name), data)
    write_atomic(index, page(experiment, verdicts, panels, tables, charts, looks, made))
    show(console, experiment, verdicts, panels, tables, index)
    if strict and any(verdict.outcome == "fails" for verdict in verdicts):
        raise RunError(f"of the claims {summary(verdicts)}")
    return index


def _claims(verdicts: Sequence[Verdict]) -> dict[str, str]:
    if not verdicts:
        return {}
    lines = lines_of(verdicts)
    return {
        "claims.csv": verdict_formats.verdicts_csv(verdicts),
        "claims.md": verdict_formats.verdicts_markdown(lines),
        "claims.tex": latex.verdicts_latex(lines),
    }


def _charts(experiment: Experiment, panels: Sequence[Panel]) -> list[Chart]:
    by_length = Chart(
        file="perplexity_by_length",
        title="Perplexity by evaluation length",
        at="length",
        x_name="Evaluation length (tokens)",
        y_name="Perplexity per token",
        panels=tuple(panels),
        in_perplexity=True,
        band=_band(panels),
    )
    positions = position_panels(experiment)
    if not positions:
        return [by_length]
    by_position = Chart(
        file="loss_by_position",
        title="Loss by position in the window",
        at="position",
        x_name="Position in the window (tokens)",
        y_name="Loss (nats per token)",
        panels=tuple(positions),
        in_perplexity=False,
        band=_band(positions),
    )
    return [by_length, by_position]


def _band(panels: Sequence[Panel]) -> str:
    counts = {len(point.seeds) for panel in panels for s in panel.series for point in s.points}
    if counts == {1}:
        return "One seed"
    return f"Mean of {max(counts)} seeds, band from the lowest to the highest"
