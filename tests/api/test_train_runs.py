"""`posenc.train` runs a sweep like the command, and raises its errors as exceptions."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import posenc
from posenc.runs.status import Status
from posenc.sweeps.launcher import PlannedRun
from posenc.sweeps.pool import PoolLauncher


@pytest.mark.slow
def test_a_sweep_is_trained_silently_and_only_once(
    small_job: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    overrides = [*small_job, "encoding=rope,alibi", "tokens=1920", "name=notebook"]
    runs = posenc.train(overrides)
    assert [run.config.choices.encoding for run in runs] == ["rope", "alibi"]
    assert all(run.rows for run in runs)
    assert capfd.readouterr() == ("", "")
    before = [run.directory.status() for run in runs]
    assert [run.directory.status() for run in posenc.train(overrides)] == before
    plan = json.loads((runs[0].path.parent / "plan.json").read_text())
    assert plan["command"].startswith("posenc train model.width=32")


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["encoding=ropee"], r"encoding=ropee: unknown option \(did you mean rope"),
        ("encoding=rope tokns=5", "unknown key tokns"),
        (["experiment=alibi_cost"], "run posenc bench experiment=alibi_cost"),
        (["hydra.run.dir=x"], "outputs_dir="),
        (["retry=maybe"], "retry='maybe' must be true or false"),
    ],
)
def test_an_invalid_sweep_raises_an_exception(overrides: str | list[str], message: str) -> None:
    with pytest.raises(posenc.ConfigError, match=message):
        posenc.train(overrides)


def test_a_missing_config_dir_is_refused(tmp_path: Path) -> None:
    with pytest.raises(posenc.ConfigError, match="is not a folder"):
        posenc.train(["encoding=rope"], config_dirs=[tmp_path / "missing"])


def test_a_failed_run_raises_an_exception_that_names_it(
    small_job: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: PoolLauncher, runs: Sequence[PlannedRun], finished: int = 0) -> dict[str, Any]:
        Status(state="finished").write(runs[0].run.status_file)
        Status(state="failed", error="the loss is NaN").write(runs[1].run.status_file)
        return {}

    monkeypatch.setattr(PoolLauncher, "launch", fail)
    with pytest.raises(posenc.RunError) as error:
        posenc.train([*small_job, "encoding=rope,alibi"])
    first, second = str(error.value).split("\n")
    assert "1 of 2 runs" in first and "retry=true" in first
    assert second.startswith("alibi-L24") and "the loss is NaN" in second


def test_the_reason_for_a_job_that_never_started_is_in_the_exception(
    small_job: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def launch(self: PoolLauncher, runs: Sequence[PlannedRun], finished: int = 0) -> dict[str, Any]:
        return {planned.name: Status(error="no such partition") for planned in runs}

    monkeypatch.setattr(PoolLauncher, "launch", launch)
    with pytest.raises(posenc.RunError, match=r"pending \(no such partition\)"):
        posenc.train([*small_job, "encoding=rope"])


def test_an_interrupt_reaches_the_caller(
    small_job: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(self: PoolLauncher, runs: Sequence[PlannedRun], finished: int = 0) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(PoolLauncher, "launch", interrupt)
    with pytest.raises(KeyboardInterrupt):
        posenc.train([*small_job, "encoding=rope"])
