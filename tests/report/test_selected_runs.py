"""Reports on a selection of an experiment's runs."""

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console

from posenc.config.errors import RunError
from posenc.report.report_results import read_results
from posenc.report.write_report import write_report
from posenc.runs.run_directory import RunDirectory


def test_a_report_of_selected_runs_does_not_replace_the_complete_one(
    tmp_path: Path, fabricate: SimpleNamespace, console: Console
) -> None:
    folder = tmp_path / "sweep"
    for encoding in ("rope", "alibi"):
        rows = [fabricate.row(64, 2.0, protocol="by_position")]
        fabricate.run(folder, fabricate.config(encoding, 64, 1), rows)
    index = write_report(folder, console, select=lambda runs: [runs[0]])
    assert index == folder / "report-selected" / "index.html"
    assert not (folder / "report").exists()
    (run,) = read_results(folder, lambda runs: [runs[0]]).experiment.runs
    assert run.name in index.read_text()


def test_a_run_that_ended_early_keeps_its_rows_while_it_is_evaluated_again(
    tmp_path: Path, fabricate: SimpleNamespace
) -> None:
    folder = tmp_path / "early"
    status = {"state": "interrupted", "tokens": 500_000, "total_tokens": 1_500_000}
    config = fabricate.config("rope", 64, 1)
    path = fabricate.run(folder, config, [fabricate.row(64, 3.0)], **status)
    with pytest.raises(RunError, match="no run has been evaluated"):
        read_results(folder)
    with (path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 367, "tokens": 500000, "loss": 3.6, "stopped_early": true}\n')
    assert len(read_results(folder).experiment.runs[0].rows) == 1


def test_runs_that_are_not_selected_are_not_listed_as_missing(
    tmp_path: Path, fabricate: SimpleNamespace
) -> None:
    folder = tmp_path / "sweep"
    fabricate.run(folder, fabricate.config("rope", 64, 1), [fabricate.row(64, 2.0)])
    fabricate.run(folder, fabricate.config("alibi", 64, 1), [], state="failed")

    def finished(runs: Sequence[RunDirectory]) -> list[RunDirectory]:
        return [run for run in runs if run.status().state == "finished"]

    assert read_results(folder, finished).missing == []
    assert read_results(folder).missing != []
