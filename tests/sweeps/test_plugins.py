"""The sweeper and the launcher as Hydra finds, builds and drives them, with the real conf/."""

import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hydra._internal.callbacks import Callbacks
from hydra.core.global_hydra import GlobalHydra
from hydra.core.plugins import Plugins
from hydra.types import HydraContext

from posenc.config.compose import compose, hydra_at_conf
from posenc.config.errors import ConfigError
from posenc.runs.files import read_lines
from posenc.runs.run_directory import RunDirectory
from posenc.runs.status import Status
from posenc.sweeps.overrides import steering
from posenc.sweeps.pool import STARTS

EXPERIMENT = """# @package _global_
# Two grids.
name: trial
grids:
  - encoding: [nope, alibi]
  - encoding: rope
    encoding.spectrum.base: [100, 5e5]
"""
SCAN = """
import sys
from hydra.core.plugins import Plugins
from hydra.plugins.launcher import Launcher
from hydra.plugins.sweeper import Sweeper
found = [*Plugins.instance().discover(Launcher), *Plugins.instance().discover(Sweeper)]
print(*(plugin.__name__ for plugin in found))
sys.exit("torch" in sys.modules)
"""
Sweep = Callable[..., dict[str, Status]]


def test_hydra_finds_both_without_importing_torch() -> None:
    done = subprocess.run([sys.executable, "-c", SCAN], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert {"PoolLauncher", "PosencSweeper"} <= set(done.stdout.split())


class Planner:
    """Plans a stand-in for each job, named by its overrides."""

    def __init__(self, planned: Callable[..., RunDirectory]) -> None:
        self._planned = planned
        self.calls: list[list[list[str]]] = []
        self.runs: dict[str, RunDirectory] = {}
        self.behaviours: dict[str, str] = {}

    def __call__(self, jobs: list[list[str]]) -> list[list[str]]:
        self.calls.append(jobs)
        names = [",".join(override.rpartition("=")[2] for override in job) for job in jobs]
        for name in names:
            if name not in self.runs:
                behaviour = self.behaviours.get(name, "finish")
                self.runs[name] = self._planned(name, behaviour)
        return [[str(self.runs[name].path), "--module", "mine"] for name in names]


@pytest.fixture
def planner(planned: Callable[..., RunDirectory]) -> Planner:
    return Planner(planned)


@pytest.fixture
def sweep(
    planner: Planner, stand_in: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Sweep:
    """Drive the sweeper as the command line does, each job being a stand-in."""
    monkeypatch.setattr("posenc.sweeps.pool.JOB", stand_in)
    (tmp_path / "conf" / "experiment").mkdir(parents=True)
    (tmp_path / "conf" / "experiment" / "trial.yaml").write_text(EXPERIMENT)
    (tmp_path / "conf" / "encoding").mkdir()
    (tmp_path / "conf" / "encoding" / "mine.yaml").write_text("# Mine.\n_target_: mine.Mine\n")

    def drive(*arguments: str) -> dict[str, Status]:
        config = compose("train", steering(arguments), [tmp_path / "conf"], with_hydra=True)
        with hydra_at_conf():
            loader = GlobalHydra.instance().config_loader()
            sweeper = Plugins.instance().instantiate_sweeper(
                config=config,
                hydra_context=HydraContext(config_loader=loader, callbacks=Callbacks()),
                task_function=planner,
            )
        return sweeper.sweep(list(arguments))

    return drive


def started(planner: Planner) -> list[str]:
    folder = next(iter(planner.runs.values())).path.parent
    rows: Sequence[dict[str, str]] = read_lines(folder / "events.jsonl")
    return sorted(row["run"] for row in rows if row["event"] == "start")


def test_all_jobs_are_planned_at_once_and_seen_to_their_end(sweep: Sweep, planner: Planner) -> None:
    statuses = sweep("experiment=trial", "seed=1")
    names = ["nope,trial,1", "alibi,trial,1", "rope,100,trial,1", "rope,500000.0,trial,1"]
    assert [len(jobs) for jobs in planner.calls] == [4]
    assert {name: status.state for name, status in statuses.items()} == dict.fromkeys(
        names, "finished"
    )
    assert started(planner) == sorted(names)


def test_again_runs_what_is_missing_and_nothing_else(
    sweep: Sweep, planner: Planner, capsys: pytest.CaptureFixture[str]
) -> None:
    planner.behaviours = {"alibi": "fail", "rope": "killed"}
    first = sweep("encoding=nope,alibi,rope")
    assert [status.state for status in first.values()] == ["finished", "failed", "interrupted"]
    assert started(planner) == ["alibi", "nope", *["rope"] * STARTS]
    (planner.runs["rope"].path / "behaviour.txt").write_text("finish")
    capsys.readouterr()
    second = sweep("encoding=nope,alibi,rope")
    assert "2 runs (1 finished before)" in capsys.readouterr().err
    assert [status.state for status in second.values()] == ["finished", "failed", "finished"]
    assert started(planner) == ["alibi", "nope", *["rope"] * (STARTS + 1)]


def test_failed_runs_are_tried_again_when_asked(sweep: Sweep, planner: Planner) -> None:
    planner.behaviours = {"alibi": "fail"}
    sweep("encoding=alibi")
    (planner.runs["alibi"].path / "behaviour.txt").write_text("finish")
    assert sweep("encoding=alibi")["alibi"].state == "failed"
    again = sweep("encoding=alibi", "retry=true")
    assert [status.state for status in again.values()] == ["finished"]


def test_jobs_that_are_one_run_start_it_once(
    sweep: Sweep, planner: Planner, planned: Callable[..., RunDirectory]
) -> None:
    planner.runs = dict.fromkeys(["1", "2"], planned("same"))
    assert list(sweep("seed=1,2")) == ["same"]
    assert started(planner) == ["same"]


def test_glob_sees_the_options_of_other_folders(sweep: Sweep, planner: Planner) -> None:
    sweep("encoding=glob([m*,nop*])")
    assert planner.calls == [[["encoding=mine"], ["encoding=nope"]]]


def test_the_launcher_takes_its_number_of_jobs(sweep: Sweep, planner: Planner) -> None:
    planner.behaviours = dict.fromkeys(["nope,2", "alibi,2"], "meet")
    statuses = sweep("encoding=nope,alibi", "hydra.launcher.jobs=2")
    assert {status.state for status in statuses.values()} == {"finished"}
    with pytest.raises(ConfigError, match=r"hydra\.launcher\.jobs=1 or more"):
        sweep("hydra.launcher.jobs=0")
