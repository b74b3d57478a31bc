"""`posenc status` shows an incomplete W&B run, and `posenc sync` rewrites it."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from posenc.cli import main
from posenc.config.errors import RunError
from posenc.config.paths import experiment_command
from posenc.runs.evaluation_rows import merge_rows
from posenc.runs.files import append_jsonl
from posenc.runs.run_directory import RunDirectory
from posenc.runs.status import Status
from posenc.tracking.mirror_file import MirrorFile
from posenc.tracking.wandb_tracker import WandbTracker


@pytest.fixture
def finished(run, config, rows, evaluation_row) -> RunDirectory:
    """A finished run of eight steps and one evaluation that was logged offline."""
    tracker = WandbTracker()
    tracker.start(run, config)
    for row in rows(1, 8):
        append_jsonl(run.metrics_file, row)
    tracker.log(rows(1, 8))
    merge_rows(run.evaluation_file, [evaluation_row(64, 20.0)])
    tracker.finish(failed=False)
    run.status().replace(state="finished", started=1.0).write(run.status_file)
    return run


def posenc(command: str, folder: Path, *arguments: str) -> int:
    return main([command, folder.name, f"outputs_dir={folder.parent}", *arguments])


def empty(file: Path) -> None:
    file.write_bytes(b"")


def cut_in_half(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


@pytest.mark.slow
@pytest.mark.parametrize("damage", [empty, cut_in_half, Path.unlink])
def test_sync_rewrites_a_corrupt_offline_file(
    damage: Callable[[Path], None], finished, folder, read_offline, capsys
) -> None:
    (logged,) = read_offline(folder)
    history = logged.history()
    assert posenc("status", folder) == 0
    assert "incomplete in W&B" not in capsys.readouterr().out
    damage(logged.path)
    assert posenc("status", folder) == 0
    printed = "".join(capsys.readouterr().out.split())
    assert f"{experiment_command('sync', folder)} --offline".replace(" ", "") in printed
    for outcome in ("recreated", "complete"):
        assert posenc("sync", folder, "--offline") == 0
        assert f"{finished.name}: {outcome}" in capsys.readouterr().out
    (rewritten,) = read_offline(folder)
    assert rewritten.history() == history
    assert [row["_step"] for row in history] == list(range(1, 10))
    assert rewritten.summary["summary"]["ppl@L"] == 20.0
    assert posenc("status", folder) == 0
    assert "incomplete in W&B" not in capsys.readouterr().out


def test_a_run_whose_logging_failed_is_incomplete(run, folder, config, rows, capsys) -> None:
    (folder / "wandb").write_text("in the way")
    tracker = WandbTracker()
    tracker.start(run, config)
    append_jsonl(run.metrics_file, rows(1, 1)[0])
    tracker.finish(failed=False)
    run.status().replace(state="finished", started=1.0).write(run.status_file)
    assert posenc("status", folder, "--json") == 0
    assert json.loads(capsys.readouterr().out)[0]["wandb_complete"] is False


def test_nothing_is_known_about_a_run_without_a_wandb_run(run, folder, capsys) -> None:
    run.status().replace(state="finished", started=1.0).write(run.status_file)
    assert MirrorFile(run).is_complete is None
    assert posenc("status", folder) == 0
    assert "incomplete" not in capsys.readouterr().out


def test_a_run_on_the_server_is_complete_without_local_files(run) -> None:
    mirror_file = MirrorFile(run)
    mirror_file.record_open("train", save_diff=False)
    assert not MirrorFile(run).is_complete
    mirror_file.record_complete(offline=False)
    assert MirrorFile(run).is_complete


@pytest.mark.parametrize(
    ("job_type", "tokens", "file"),
    [("train", 0, None), ("evaluate", 0, None), ("train", 5, None), ("train", 0, "metrics.jsonl")],
)
def test_uncommitted_changes_are_saved_only_when_training_starts(
    tmp_path: Path, monkeypatch, job_type: str, tokens: int, file: str | None
) -> None:
    """When a run is evaluated, the changes in the current directory have nothing to do with it."""
    run = RunDirectory(tmp_path / "experiment" / "run")
    run.path.mkdir(parents=True)
    if file:
        (run.path / file).touch()
    monkeypatch.setattr("posenc.tracking.mirror_file.git_diff", lambda: "+SECRET\n")
    monkeypatch.setattr("posenc.tracking.mirror_file.git_state", lambda: {"git_dirty": True})
    Status(tokens=tokens).write(run.status_file)
    mirror_file = MirrorFile(run)
    mirror_file.record_open(job_type, save_diff=True)
    starts_training = job_type == "train" and not tokens and not file
    assert (run.path / "diff.patch").exists() == starts_training
    assert mirror_file.git == ({"git_dirty": True} if starts_training else {})


def test_edited_rows_are_not_sent_to_wandb(run) -> None:
    MirrorFile(run).record_open("train", save_diff=False)
    contents = json.loads((run.path / "mirror.json").read_text())
    row = {"extrapolation/length": 4096, "extrapolation/nonoverlapping/perplexity": 1.2}
    contents["entries"].append({"step": 45, "row": row})
    (run.path / "mirror.json").write_text(json.dumps(contents))
    with pytest.raises(RunError, match="edited"):
        MirrorFile(run)


@pytest.mark.parametrize("id", ["../../other", "*", 5, "a" * 129])
def test_a_mirror_file_with_an_invalid_wandb_id_is_corrupt(run, id: object) -> None:
    (run.path / "mirror.json").write_text(json.dumps({"identity": {"id": id}}))
    with pytest.raises(RunError, match=r"mirror\.json is corrupt"):
        MirrorFile(run)


def test_a_mirror_file_cannot_name_another_wandb_run_of_the_user(run) -> None:
    (run.path / "mirror.json").write_text(json.dumps({"identity": {"id": "thesis.main-run"}}))
    with pytest.raises(RunError, match=r"names the W&B run thesis\.main-run"):
        MirrorFile(run)


def test_a_run_that_was_moved_and_a_trial_of_the_users_sweep_keep_their_wandb_ids(
    run, monkeypatch: pytest.MonkeyPatch
) -> None:
    identity = {"id": f"old_name.{run.name}"}
    (run.path / "mirror.json").write_text(json.dumps({"identity": identity}))
    assert MirrorFile(run).run_id == identity["id"]
    (run.path / "mirror.json").unlink()
    monkeypatch.setenv("WANDB_SWEEP_ID", "s1")
    monkeypatch.setenv("WANDB_RUN_ID", "a1b2c3d4")
    MirrorFile(run).record_open("train", save_diff=False)
    assert MirrorFile(run).run_id == "a1b2c3d4"
