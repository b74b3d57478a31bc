"""Runs of other versions of posenc and of other devices are read, resumed, evaluated or refused."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from posenc.api.loaded_run import load
from posenc.cli import main
from posenc.config.errors import RunError
from posenc.jobs.exit_codes import FAILED, FINISHED, INTERRUPTED
from posenc.jobs.job import main as job
from posenc.runs.plan_file import read_plan
from posenc.runs.run_directory import RunDirectory
from posenc.runs.status import Status
from posenc.tracking.mirror_file import MirrorFile
from posenc.training.checkpoint import list_checkpoints, save_checkpoint

SmallRun = Callable[..., RunDirectory]


def test_a_status_key_of_a_later_version_is_ignored(small_run: SmallRun) -> None:
    run = small_run()
    run.status_file.write_text('{"state": "finished", "colour": "red"}')
    assert run.status() == Status(state="finished")


@pytest.mark.slow
def test_a_run_with_a_kernel_that_this_device_lacks_is_evaluated_with_another(
    finished: RunDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = finished.rows()
    text = finished.config_file.read_text()
    finished.config_file.write_text(text.replace("\nkernel: auto\n", "\nkernel: flex\n"))
    finished.evaluation_file.unlink()
    words = ["evaluate", f"run={finished.path}", "evaluation.lengths=[24]"]
    assert main([*words, "evaluation/swap=none,window"]) == 0
    losses = {row["loss"] for row in rows if row["length"] == 24}
    assert {row["loss"] for row in finished.rows() if not row["swap"]} == losses
    assert load(finished.path).score("some text").isfinite().all()
    assert main(["inspect", f"run={finished.path}", "windows=1", "lengths=[]"]) == 0


def test_a_run_of_an_earlier_version_resumes_without_a_digest_of_its_training_log(
    finished: RunDirectory,
) -> None:
    status = finished.status().replace(metrics_digest=None)
    status.replace(state="interrupted").write(finished.status_file)
    for old in list_checkpoints(finished.checkpoints):
        contents = old.load()
        del contents["metrics_digest"]
        old.path.unlink()
        save_checkpoint(
            finished.checkpoints, old.step, lambda path, c=contents: torch.save(c, path)
        )
    rows = finished.metrics()
    rows[0]["loss"] += 1e-9
    finished.metrics_file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    assert job([str(finished.path)]) == FINISHED


def test_the_checkpoint_of_another_training_of_the_run_is_not_evaluated(
    finished: RunDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    last = list_checkpoints(finished.checkpoints)[0]
    contents = {**last.load(), "metrics_digest": "0123456789abcdef"}
    last.path.unlink()
    save_checkpoint(finished.checkpoints, last.step, lambda path: torch.save(contents, path))
    assert main(["evaluate", f"run={finished.path}", "evaluation.lengths=[24]"]) == 1
    assert "is not the final checkpoint of" in " ".join(capsys.readouterr().err.split())


def test_a_resumed_run_uses_the_kernel_of_the_new_command(
    small_run: SmallRun, caplog: pytest.LogCaptureFixture
) -> None:
    run = small_run("checkpoint.every_seconds=0", "kernel=reference")
    assert job([str(run.path)], lambda: len(run.metrics()) < 2) == INTERRUPTED
    assert small_run("kernel=auto").config_dict()["kernel"] == "auto"
    run.config_file.write_text(run.config_file.read_text().replace("kernel: auto", "kernel: flex"))
    assert job([str(run.path)]) == FAILED
    assert "use kernel=auto" in str(run.status().error)
    assert "Traceback" not in caplog.text


def test_a_run_resumes_with_the_resolved_settings_of_another_version(
    finished: RunDirectory,
) -> None:
    status = finished.status()
    resolved = {key: value for key, value in status.resolved.items() if key != "device"}
    status.replace(state="interrupted", resolved={**resolved, "colour": "red"}).write(
        finished.status_file
    )
    assert job([str(finished.path)]) == FINISHED
    assert finished.status().resolved == status.resolved


def test_keys_of_a_later_version_are_ignored(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    for file in (tmp_path / "plan.json", tmp_path / "mirror.json", run.status_file):
        file.write_text('{"runs": ["a"], "state": "finished", "colour": "red"}')
    assert read_plan(tmp_path)["runs"] == ["a"]
    assert MirrorFile(run).entries == []
    assert Status.read(run.status_file).state == "finished"


def test_a_run_of_version_0_1_is_refused(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    run.config_file.write_text("encoding: {}\nfrozen: {hash: f00d, posenc: 0.1.0}\n")
    with pytest.raises(RunError, match="created by an earlier version of posenc"):
        run.config()
