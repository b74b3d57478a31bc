"""`posenc status`: the table and JSON of an experiment's runs."""

import io
import shlex
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from posenc.cli.main import main
from posenc.config.console import Console
from posenc.runs.files import read_json, write_json
from posenc.runs.lock import lock
from posenc.runs.run_directory import RunDirectory
from posenc.runs.trusted_code import record_trusted
from posenc.sweeps.status_table import all_runs, status_json, status_table

FakeRun = Callable[..., RunDirectory]


@pytest.fixture
def folder(fake_run: FakeRun) -> Path:
    """An experiment with runs of every state; `gone` has no directory, `another` is not planned."""
    now = time.time()
    run = fake_run("done", state="finished", work_done=1.0, updated=now)
    fake_run("broken", state="failed", error="RunError: no [loss]", work_done=0.2, updated=now)
    fake_run(
        "busy",
        state="running",
        phase="evaluation",
        work_done=0.75,
        tokens_per_second=20080.0,
        seconds=300.0,
        updated=now,
    )
    fake_run("killed", state="running", work_done=0.5, updated=now)
    fake_run("another")
    order = ["killed", "done", "broken", "gone", "busy"]
    plan = {"command": "posenc train experiment=trial", "runs": order}
    write_json(run.path.parent / "plan.json", plan)
    return run.path.parent


def printed_table(folder: Path) -> str:
    console = Console(file=io.StringIO(), width=80)
    with lock(folder / "busy" / ".lock", timeout=0):
        console.print(status_table(all_runs(folder)), soft_wrap=True)
    return console.file.getvalue()  # type: ignore[attr-defined]


def test_runs_are_in_the_order_of_the_plan(folder: Path) -> None:
    names = [run.name for run in all_runs(folder)]
    assert names == ["killed", "done", "broken", "gone", "busy", "another"]


def test_every_state_is_shown(folder: Path) -> None:
    rows = {line.split()[0]: line.split()[1:] for line in printed_table(folder).splitlines()[:7]}
    assert rows["killed"] == ["interrupted", "50%", "0:00", "ago"]
    assert rows["done"] == ["finished", "100%", "0:00", "ago"]
    assert rows["broken"] == ["failed", "20%", "0:00", "ago"]
    assert rows["gone"] == rows["another"] == ["pending", "0%"]
    assert rows["busy"] == ["running", "evaluation", "75%", "20.1k", "1:40", "0:00", "ago"]


def test_the_states_are_visible_beside_a_very_long_name(fake_run: FakeRun) -> None:
    folder = fake_run("done", state="finished", work_done=1.0).path.parent
    fake_run("x" * 250)
    console = Console(file=io.StringIO(), width=120)
    console.print(status_table(all_runs(folder)))
    table = console.file.getvalue()  # type: ignore[attr-defined]
    assert "finished" in table and "pending" in table


def test_a_table_is_visible_if_columns_is_0(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "0")
    assert Console(file=io.StringIO()).width > 0


def test_text_in_the_files_of_a_run_cannot_control_the_terminal(
    fake_run: FakeRun, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "[link=https://a.b]x[/link]\x1b]0;title\x07\x9b2J\rfinished"
    run = fake_run("a\x1b[2J[x]", state="failed", error=text)
    folder = run.path.parent
    run.config_file.write_text("")
    for command in ("status", "sync", "report"):
        main([command, folder.name, f"outputs_dir={folder.parent}"])
    assert main(["clean", f"run='{run.path}'"]) == 1
    printed = "".join(capsys.readouterr())
    assert "[link=https://a.b]x[/link] ]0;title" in printed
    assert "a\N{REPLACEMENT CHARACTER}[2J[x]" in printed
    assert not set("\x1b\x07\x9b\r") & set(printed)


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("posenc train 'seed=1'", "posenc train seed=1"),
        ("posenc train 'encoding.slopes=[1,2]'", "posenc train 'encoding.slopes=[1,2]'"),
        ("posenc train 'seed=[1,2]'; rm x", None),
        ("posenc train\nrm x", None),
        ("posenc train $(rm x)", None),
        ("posenc train --config''-dir x", None),
        ("posenc train mod''ules=[x]", None),
        ("posenc train experiment=../../x", None),
        ("posenc train encoding._tar\\get_=x.Y", None),
        ("posenc train data=text data.paths=secret.txt", None),
        ("posenc train outputs_dir=/x", None),
        ("posenc train logger.entity=x", None),
        ("posenc clean name=x --yes", None),
        ("rm x", None),
    ],
)
def test_pasting_the_command_of_a_plan_runs_nothing_else(
    fake_run: FakeRun, command: str, shown: str | None
) -> None:
    run = fake_run("a", state="interrupted")
    write_json(run.path.parent / "plan.json", {"command": command, "runs": ["a"]})
    assert status_json([run])[0]["command"] == shown


@pytest.mark.parametrize(
    "word", ["--config-dir outputs/x", "+modules=[a]", "encoding._target_=a.B"]
)
def test_a_command_that_may_run_other_code_is_printed_only_where_it_has_been_run(
    fake_run: FakeRun, word: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    run, command = fake_run("a", state="interrupted"), f"posenc train {word}"
    write_json(run.path.parent / "plan.json", {"command": command, "runs": ["a"]})
    assert status_json([run])[0]["command"] is None
    assert 'see "commands" in' in printed_table(run.path.parent)
    record_trusted({"command": [command]})
    assert status_json([run])[0]["command"] == shlex.join(shlex.split(command))
    monkeypatch.chdir(tmp_path)
    assert status_json([run])[0]["command"] is None


def test_the_command_to_finish_a_renamed_experiment_uses_its_new_name(fake_run: FakeRun) -> None:
    run = fake_run("a", state="interrupted")
    plan = {"command": "posenc train seed=1 name=old", "name": "old", "runs": ["a"]}
    write_json(run.path.parent / "plan.json", plan)
    command = status_json([run])[0]["command"]
    assert command == f"posenc train seed=1 name={run.path.parent.name}"


def test_errors_and_the_command_to_finish_are_below_the_table(folder: Path) -> None:
    table = printed_table(folder)
    assert "broken failed: RunError: no [loss]" in table
    assert "killed interrupted: its process was killed" in table
    assert "6 runs: 2 pending, 1 running, 1 interrupted, 1 failed, 1 finished" in table
    assert "to finish: posenc train experiment=trial retry=true\n" in table


def test_a_finished_experiment_has_no_command_to_finish(fake_run: FakeRun) -> None:
    folder = fake_run("done", state="finished", work_done=1.0).path.parent
    write_json(folder / "plan.json", {"command": "posenc train", "runs": ["done"]})
    assert "to finish" not in printed_table(folder)


def test_json_has_the_path_the_state_the_command_and_the_time_left(folder: Path) -> None:
    with lock(folder / "busy" / ".lock", timeout=0):
        entries = {entry["run"]: entry for entry in status_json(all_runs(folder))}
    assert entries["busy"]["seconds_left"] == pytest.approx(100.0)
    assert entries["busy"]["path"] == str(folder / "busy")
    assert entries["killed"]["state"] == "interrupted" and entries["killed"]["seconds_left"] is None
    assert entries["gone"]["state"] == "pending"
    assert entries["busy"]["command"] == "posenc train experiment=trial"
    assert entries["broken"]["command"] == "posenc train experiment=trial retry=true"
    assert entries["done"]["command"] is None


def test_each_command_to_finish_is_shown_once(folder: Path) -> None:
    plan = read_json(folder / "plan.json")
    commands = {"gone": "posenc train seed=3", "broken": "posenc train seed=1"}
    write_json(folder / "plan.json", plan | {"commands": commands})
    lines = [line for line in printed_table(folder).splitlines() if line.startswith("to finish: ")]
    assert lines == [
        "to finish: posenc train experiment=trial",
        "to finish: posenc train seed=1 retry=true",
        "to finish: posenc train seed=3",
    ]


def test_the_command_to_finish_a_failed_run_has_retry_true_only_once(fake_run: FakeRun) -> None:
    run = fake_run("a", state="failed")
    plan = {"command": "posenc train retry=false seed=1", "runs": ["a"]}
    write_json(run.path.parent / "plan.json", plan)
    assert status_json([run])[0]["command"] == "posenc train seed=1 retry=true"


@pytest.mark.parametrize("command", ["bench", "inspect"])
def test_status_of_a_folder_without_runs_names_its_contents(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "costs" / command).mkdir(parents=True)
    assert main(["status", f"outputs_dir={tmp_path}", "costs"]) == 0
    printed = capsys.readouterr().out
    assert f"posenc {command}" in printed and str(tmp_path / "costs" / command) in printed
