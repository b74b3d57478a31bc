"""`posenc train` from the command line to the launcher, with the real conf/ and fake jobs."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from posenc.cli import main
from posenc.runs.files import read_jsonl
from posenc.runs.run_directory import RunDirectory
from posenc.runs.status import Status
from posenc.sweeps.job_process import JobProcess
from posenc.sweeps.launcher import PlannedRun
from posenc.sweeps.pool import MAX_STARTS

EXPERIMENT = """# @package _global_
# Two grids.
name: trial
grids:
  - encoding: [nope, alibi]
  - encoding: rope
    encoding.spectrum.base: [100, 5e5]
"""
Sweep = Callable[..., dict[str, Status]]


class FakePlan:
    """Replaces `plan`: makes a fake run for each job, named by the values of its overrides."""

    def __init__(self, fake_run: Callable[..., RunDirectory]) -> None:
        self._fake_run = fake_run
        self.calls: list[list[list[str]]] = []
        self.runs: dict[str, RunDirectory] = {}
        self.behaviours: dict[str, str] = {}
        self.planned: list[RunDirectory] = []

    def __call__(self, jobs: list[list[str]], *args: object, **kwargs: object) -> list[PlannedRun]:
        self.calls.append(jobs)
        names = [
            ",".join(o.rpartition("=")[2] for o in job if not o.startswith("retry")) for job in jobs
        ]
        for name in names:
            if name not in self.runs:
                behaviour = self.behaviours.get(name, "finish")
                self.runs[name] = self._fake_run(name, behaviour)
        unique = {self.runs[name].path: self.runs[name] for name in names}
        self.planned = list(unique.values())
        return [PlannedRun(run, ("mine",)) for run in unique.values()]


@pytest.fixture
def fake_plan(fake_run: Callable[..., RunDirectory], monkeypatch: pytest.MonkeyPatch) -> FakePlan:
    fake_plan = FakePlan(fake_run)
    monkeypatch.setattr("posenc.sweeps.plan.plan", fake_plan)
    return fake_plan


@pytest.fixture
def sweep(
    fake_plan: FakePlan, fake_job: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Sweep:
    """Runs `posenc train` with fake jobs and returns the statuses of the runs."""

    def start(planned: PlannedRun, **options: Any) -> JobProcess:
        replaced: Any = {**options, "command": fake_job, "fork": False}
        return JobProcess(planned, **replaced)

    monkeypatch.setattr("posenc.sweeps.pool.JobProcess", start)
    (tmp_path / "conf" / "experiment").mkdir(parents=True)
    (tmp_path / "conf" / "experiment" / "trial.yaml").write_text(EXPERIMENT)
    (tmp_path / "conf" / "encoding").mkdir()
    (tmp_path / "conf" / "encoding" / "mine.yaml").write_text(
        "# An encoding.\n_target_: mine.Mine\n"
    )

    def train(*overrides: str, code: int | None = None) -> dict[str, Status]:
        exit_code = main(["train", *overrides, "--config-dir", str(tmp_path / "conf")])
        statuses = {run.name: run.status() for run in fake_plan.planned}
        finished = all(status.state == "finished" for status in statuses.values())
        assert exit_code == (code if code is not None else int(not finished))
        return statuses

    return train


def started(fake_plan: FakePlan) -> list[str]:
    folder = next(iter(fake_plan.runs.values())).path.parent
    rows: Sequence[dict[str, str]] = read_jsonl(folder / "events.jsonl")
    return sorted(row["run"] for row in rows if row["event"] == "start")


def test_all_jobs_are_planned_at_once_and_finished(sweep: Sweep, fake_plan: FakePlan) -> None:
    statuses = sweep("experiment=trial", "seed=1")
    names = ["nope,trial,1", "alibi,trial,1", "rope,100,trial,1", "rope,500000.0,trial,1"]
    assert [len(jobs) for jobs in fake_plan.calls] == [4]
    assert {name: status.state for name, status in statuses.items()} == dict.fromkeys(
        names, "finished"
    )
    assert started(fake_plan) == sorted(names)


def test_rerunning_a_sweep_runs_only_what_is_missing(
    sweep: Sweep, fake_plan: FakePlan, capsys: pytest.CaptureFixture[str]
) -> None:
    fake_plan.behaviours = {"alibi": "fail", "rope": "killed"}
    first = sweep("encoding=nope,alibi,rope")
    assert [status.state for status in first.values()] == ["finished", "failed", "interrupted"]
    assert started(fake_plan) == ["alibi", "nope", *["rope"] * MAX_STARTS]
    (fake_plan.runs["rope"].path / "behaviour.txt").write_text("finish")
    capsys.readouterr()
    second = sweep("encoding=nope,alibi,rope")
    assert "2 runs: 1 already finished, 1 to run" in capsys.readouterr().err
    assert [status.state for status in second.values()] == ["finished", "failed", "finished"]
    assert started(fake_plan) == ["alibi", "nope", *["rope"] * (MAX_STARTS + 1)]


@pytest.mark.slow
def test_failed_runs_are_rerun_with_retry(sweep: Sweep, fake_plan: FakePlan) -> None:
    fake_plan.behaviours = {"alibi": "fail"}
    sweep("encoding=alibi")
    (fake_plan.runs["alibi"].path / "behaviour.txt").write_text("finish")
    assert sweep("encoding=alibi")["alibi"].state == "failed"
    retried = sweep("encoding=alibi", "retry=true")
    assert [status.state for status in retried.values()] == ["finished"]


@pytest.mark.slow
def test_jobs_that_are_the_same_run_start_it_once(
    sweep: Sweep, fake_plan: FakePlan, fake_run: Callable[..., RunDirectory]
) -> None:
    fake_plan.runs = dict.fromkeys(["1", "2"], fake_run("same"))
    assert list(sweep("seed=1,2")) == ["same"]
    assert started(fake_plan) == ["same"]


@pytest.mark.slow
def test_glob_includes_options_of_config_dirs(sweep: Sweep, fake_plan: FakePlan) -> None:
    sweep("encoding=glob([mine*,nop*])")
    assert fake_plan.calls == [[["encoding=mine"], ["encoding=nope"]]]


@pytest.mark.slow
def test_the_launcher_runs_the_requested_number_of_jobs(
    sweep: Sweep, fake_plan: FakePlan, capsys: pytest.CaptureFixture[str]
) -> None:
    fake_plan.behaviours = dict.fromkeys(["nope,2", "alibi,2"], "meet")
    statuses = sweep("encoding=nope,alibi", "hydra.launcher.jobs=2")
    assert {status.state for status in statuses.values()} == {"finished"}
    sweep("hydra.launcher.jobs=0", code=2)
    assert "hydra.launcher.jobs=0" in capsys.readouterr().err


def test_hydra_settings_without_effect_are_refused(
    sweep: Sweep, fake_plan: FakePlan, capsys: pytest.CaptureFixture[str]
) -> None:
    alternatives = {
        "hydra.run.dir=x": "outputs_dir=",
        "hydra/sweeper=optuna": "posenc tune",
        "hydra.mode=MULTIRUN": "comma-separated values define a sweep",
        "hydra/job_logging=none": "run.log",
        "hydra.runtime=x": "only hydra/launcher",
        "optimizer.learning_rate=interval(1,2)": "posenc tune",
    }
    for override, alternative in alternatives.items():
        sweep(override, code=2)
        printed = capsys.readouterr().err
        assert override.partition("=")[0] in printed and alternative in printed
    assert not fake_plan.calls
