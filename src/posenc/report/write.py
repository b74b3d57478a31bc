"""From a folder of runs to its report."""

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from posenc.claims.verdict import Verdict
from posenc.config.errors import RunError
from posenc.report import formats, latex, verdict_formats
from posenc.report.collect import read_experiment
from posenc.report.panels import length_panels, position_panels, task_panels
from posenc.report.pictures import pictures
from posenc.report.published import beside
from posenc.report.reading import missing
from posenc.report.report_page import page
from posenc.report.results import Results
from posenc.report.tables import Table, accuracy_table, table_of
from posenc.report.terminal import show
from posenc.report.verdicts import lines_of, summary
from posenc.runs.files import write_atomic


def write_report(folder: Path, console: Console, *, strict: bool = False) -> Path:
    """Write `folder`/report/ from the runs in `folder`, print it, and return its index.html.

    ConfigError where `folder` holds no runs; RunError where none of them has been evaluated, and
    if `strict`, once all is written, where a claim fails.
    """
    experiment = read_experiment(folder)
    lengths, tasks = length_panels(experiment), task_panels(experiment)
    results = Results(
        experiment=experiment,
        lengths=lengths,
        tasks=tasks,
        length_tables=[table_of(panel, beside(panel, experiment)) for panel in lengths],
        task_tables=[accuracy_table(panel) for panel in tasks],
        pictures=pictures(experiment, lengths, tasks, position_panels(experiment)),
    )
    made = {
        **_claims(experiment.verdicts),
        **_tables("accuracy", results.task_tables, missing(experiment)),
        **_tables("extrapolation", results.length_tables, missing(experiment)),
        "runs.csv": formats.runs_csv(experiment),
        **{name: data for p in results.pictures for name, data in p.files().items()},
    }
    index = folder / "report" / "index.html"
    for name, data in made.items():
        write_atomic(index.with_name(name), data)
    write_atomic(index, page(results, made))
    show(console, results, index)
    if strict and any(verdict.outcome == "fails" for verdict in experiment.verdicts):
        raise RunError(f"of the claims {summary(experiment.verdicts)}")
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


def _tables(stem: str, tables: Sequence[Table], notes: Sequence[str]) -> dict[str, str]:
    if not tables:
        return {}
    return {
        f"{stem}.csv": formats.to_csv(tables),
        f"{stem}.md": formats.to_markdown(tables, notes),
        f"{stem}.tex": latex.extrapolation_latex(tables),
    }
