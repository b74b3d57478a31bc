"""Errors name a corrupt run and the remedy; commands on other runs are not affected."""

import json
import os
import re
import shutil
from collections.abc import Callable
from math import exp
from pathlib import Path

import pytest

from fuzzing import time_limit
from posenc.cli import main
from posenc.config.errors import RunError
from posenc.data.tokenizers import load_tokenizer
from posenc.jobs.exit_codes import FAILED, FINISHED
from posenc.jobs.job import main as job
from posenc.runs.files import truncate_jsonl
from posenc.runs.lock import is_locked
from posenc.runs.loss_arrays import read_arrays
from posenc.runs.plan_file import read_plan
from posenc.runs.run_directory import RunDirectory
from posenc.runs.status import Status
from posenc.sweeps.plan import plan
from posenc.tracking.mirror_file import MirrorFile
from posenc.tracking.upload import sync_run
from posenc.training.checkpoint import list_checkpoints, resumable_checkpoint

SmallRun = Callable[..., RunDirectory]


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[1]",
        '{"state": 3}',
        '{"tokens": "many"}',
        "\xff",
        '{"resolved": {"threads": "1"}}',
        '{"resolved": {"threads": 100000}}',
        '{"resolved": {"device": "tpu"}}',
        '{"resolved": {"code": "../.."}}',
        '{"updated": 1e308}',
        '{"started": -1}',
    ],
)
def test_a_run_with_a_corrupt_status_has_failed_and_the_error_names_the_file(
    small_run: SmallRun, text: str
) -> None:
    run = small_run()
    run.status_file.write_text(text, encoding="latin-1")
    status = run.status()
    assert status.state == "failed"
    assert str(run.status_file) in str(status.error) and "retry=true" in str(status.error)


@pytest.mark.slow
def test_status_and_report_name_the_corrupt_file_of_a_run(
    small_run: SmallRun, capsys: pytest.CaptureFixture[str]
) -> None:
    intact, corrupt = small_run("encoding=rope"), small_run("encoding=alibi")
    assert job([str(intact.path)]) == FINISHED
    folder = [f"outputs_dir={intact.path.parents[1]}", "name=scratch"]
    Status(state="finished", started=1.0).write(corrupt.status_file)
    contents = {
        corrupt.status_file: "{",
        corrupt.evaluation_file: '{"rows": 3}',
        corrupt.metrics_file: "{\n",
        corrupt.timing_file: "{}\n",
        corrupt.config_file: None,
    }
    for file, text in contents.items():
        before = file.read_bytes() if file.exists() else None
        file.unlink() if text is None else file.write_text(text)
        assert main(["status", *folder]) == 0
        assert main(["report", *folder]) == 0
        output = "".join(capsys.readouterr().out.split())  # lines may be wrapped
        assert file.name in output and corrupt.name in output, file.name
        if before is None:
            file.unlink()
        else:
            file.write_bytes(before)


def test_a_directory_whose_name_is_not_utf8_is_named(
    finished: RunDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(finished.path, finished.path.parent / os.fsdecode(b"rope-\xff"))
    folder = [f"outputs_dir={finished.path.parents[1]}", "name=scratch"]
    for command in (["status"], ["status", "--json"], ["report"], ["sync", "--offline"]):
        assert main([*command[:1], *folder, *command[1:]]) in (0, 1)
        output = capsys.readouterr()
        assert re.search(r"rope-(\N{REPLACEMENT CHARACTER}|\\ufffd)", output.out + output.err)
    assert (finished.path.parent / "report" / "index.html").is_file()


@pytest.mark.slow
def test_a_directory_with_the_files_of_another_run_is_not_reported(
    small_run: SmallRun, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its results would count twice, once under a wrong name."""
    trained, other = small_run("seed=1"), small_run("seed=2")
    assert job([str(trained.path)]) == FINISHED
    shutil.rmtree(other.path)
    shutil.copytree(trained.path, other.path)
    assert main(["report", f"outputs_dir={trained.path.parents[1]}", "name=scratch"]) == 0
    output = " ".join(capsys.readouterr().out.split())
    assert f"{other.name} is not named after the run" in output
    with pytest.raises(RunError, match=f"rename it to {trained.name}"):
        sync_run(other, offline=True)


@pytest.mark.slow
def test_planning_continues_and_the_job_of_the_corrupt_run_fails(
    small_run: SmallRun, small_job: list[str]
) -> None:
    run = small_run("encoding=alibi")
    assert job([str(run.path)]) == FINISHED
    run.evaluation_file.write_text('{"rows": 3}')
    planned = plan([[*small_job, f"encoding={name}"] for name in ("alibi", "rope")], [], "", print)
    assert [entry.run.status().state for entry in planned] == ["pending", "pending"]
    assert job([str(run.path)]) == FAILED
    assert "evaluation.json" in str(run.status().error)


@pytest.mark.slow
def test_training_continues_without_a_run_whose_configuration_is_corrupt(
    small_run: SmallRun, small_job: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    run = small_run("encoding=alibi")
    run.config_file.write_text("encoding: [")
    assert main(["train", *small_job, "encoding=alibi,rope"]) == 1
    printed = capsys.readouterr().err
    assert f"skipped {run.name}" in printed and "delete the directory" in printed
    assert "retry=true" not in printed
    (other,) = [path for path in run.path.parent.glob("rope-*") if path.is_dir()]
    assert RunDirectory(other).status().state == "finished"
    assert run.config_file.read_text() == "encoding: ["
    assert main(["train", *small_job, "encoding=alibi"]) == 2


@pytest.mark.parametrize("name", ["config.yaml", "tokenizer.json", "status.json", ".lock"])
def test_planning_continues_without_a_run_with_a_folder_in_place_of_a_file(
    small_run: SmallRun, small_job: list[str], name: str
) -> None:
    run = small_run("encoding=alibi")
    run.path.joinpath(name).unlink(missing_ok=True)
    run.path.joinpath(name).mkdir()
    jobs = [[*small_job, f"encoding={name}"] for name in ("alibi", "rope")]
    corrupt, other = plan(jobs, [], "", print)
    assert f"{name} is a folder, not a file" in str(corrupt.problem) and other.problem is None


def test_planning_restores_a_missing_configuration(small_run: SmallRun) -> None:
    run = small_run()
    before = run.config_file.read_text()
    Status(state="finished", started=1.0).write(run.status_file)
    run.config_file.unlink()
    assert run.status().state == "failed" and "config.yaml" in str(run.status().error)
    small_run()
    assert run.config_file.read_text() == before


def _replace_with_folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


def _replace_with_pipe(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


def _replace_with_link_to_itself(file: Path) -> None:
    file.unlink()
    file.symlink_to(file.name)


def _replace_with_broken_link(file: Path) -> None:
    file.unlink()
    file.symlink_to("missing")


def _truncate(file: Path) -> None:
    os.truncate(file, file.stat().st_size // 2)


def test_evaluate_skips_a_corrupt_run_and_evaluates_the_others(
    finished: RunDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    corrupt = RunDirectory(finished.path.with_name(finished.name.replace("-s1-", "-s2-")))
    shutil.copytree(finished.path, corrupt.path)
    for checkpoint in list_checkpoints(corrupt.checkpoints):
        _truncate(checkpoint.path)
    words = [f"run={corrupt.path},{finished.path}", "evaluation.lengths=[30]"]
    assert main(["evaluate", *words]) == 1
    printed = capsys.readouterr()
    assert (
        f"{corrupt.name} could not be evaluated" in printed.err
        and "1 of 2 evaluations" in printed.err
    )
    assert 30 in {row["length"] for row in finished.rows()}
    assert "Traceback" not in printed.err


def test_all_failed_evaluations_of_one_run_are_counted(
    finished: RunDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    for checkpoint in list_checkpoints(finished.checkpoints):
        _truncate(checkpoint.path)
    words = [f"run={finished.path}", "evaluation.split=validation,test", "evaluation.lengths=[30]"]
    assert main(["evaluate", *words]) == 1
    assert "2 of 2 evaluations failed" in capsys.readouterr().err


def test_a_custom_evaluation_sets_the_evaluated_lengths(
    finished: RunDirectory, tmp_path: Path
) -> None:
    option = tmp_path / "my_conf" / "evaluation" / "long.yaml"
    option.parent.mkdir(parents=True)
    option.write_text("defaults: [nonoverlapping, _self_]\nfactors: [3]\n")
    words = [f"run={finished.path}", "evaluation=long", f"--config-dir={tmp_path}/my_conf"]
    before = {row["length"] for row in finished.rows()}
    assert main(["evaluate", *words]) == 0
    train_length = finished.config().train_length
    assert {row["length"] for row in finished.rows()} - before == {3 * train_length}


def test_a_finished_run_without_an_intact_checkpoint_says_how_to_train_it_again(
    finished: RunDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    losses = [row["loss"] for row in finished.rows()]
    for checkpoint in list_checkpoints(finished.checkpoints):
        _truncate(checkpoint.path)
    assert main(["evaluate", f"run={finished.path}"]) == 1
    error = capsys.readouterr().err
    assert "no intact checkpoint (2 corrupt)" in error and "step 0" not in error
    assert f"delete {finished.status_file}" in error
    finished.status_file.unlink()
    assert job([str(finished.path)]) == FINISHED
    assert [row["loss"] for row in finished.rows()] == losses
    assert main(["evaluate", f"run={finished.path}"]) == 0


@pytest.mark.parametrize(
    "damage",
    [
        _truncate,
        _replace_with_folder,
        _replace_with_pipe,
        _replace_with_link_to_itself,
        _replace_with_broken_link,
    ],
)
def test_a_corrupt_checkpoint_is_not_used(
    finished: RunDirectory, capsys: pytest.CaptureFixture[str], damage: Callable[[Path], None]
) -> None:
    newest = list_checkpoints(finished.checkpoints)[0]
    damage(newest.path)
    assert main(["evaluate", f"run={finished.path}"]) == 1
    special = newest.path.is_symlink() or newest.path.is_fifo()
    expected = f"{newest.path.name} is " if special else "is from step 1 of 2"
    assert expected in capsys.readouterr().err
    resumed = resumable_checkpoint(finished)
    assert resumed is not None and resumed.step == 1


def test_a_file_where_a_folder_of_a_run_belongs_fails_the_job_without_a_traceback(
    small_run: SmallRun, caplog: pytest.LogCaptureFixture
) -> None:
    run = small_run()
    run.checkpoints.write_text("")
    assert job([str(run.path)]) == FAILED
    assert str(run.checkpoints) in str(run.status().error)
    assert "move this one elsewhere" in str(run.status().error)
    assert "Traceback" not in caplog.text


def test_a_text_file_that_would_fill_the_memory_is_an_error(small_run: SmallRun) -> None:
    run = small_run()
    for file, read in ((run.config_file, run.config_dict), (run.metrics_file, run.metrics)):
        file.touch()
        size = file.stat().st_size
        os.truncate(file, 10**12)
        with pytest.raises(RunError, match=rf"{file.name}.*1,000,000,000,000 bytes"):
            read()
        os.truncate(file, size)


def test_a_configuration_that_is_a_pipe_is_an_error_and_does_not_block(
    small_run: SmallRun, capsys: pytest.CaptureFixture[str]
) -> None:
    run = small_run()
    _replace_with_pipe(run.config_file)
    with time_limit("report"):
        assert main(["report", "name=scratch", f"outputs_dir={run.path.parents[1]}"]) == 1
    assert "not a regular file" in capsys.readouterr().err


PIPE_READERS: dict[str, Callable[[RunDirectory], object]] = {
    "metrics.jsonl": RunDirectory.metrics,
    "loss_by_position.npz": lambda run: read_arrays(run.positions_file),
    "run.log": RunDirectory.log_text,
    "inspect/notes": RunDirectory.config,
    ".lock": lambda run: is_locked(run.lock_file),
}


@pytest.mark.parametrize("name", PIPE_READERS)
def test_a_pipe_in_place_of_a_file_is_an_error(small_run: SmallRun, name: str) -> None:
    run = small_run()
    file = run.path / name
    file.unlink(missing_ok=True)
    file.parent.mkdir(exist_ok=True)
    os.mkfifo(file)
    with pytest.raises(RunError, match="not a regular file"):
        PIPE_READERS[name](run)


def test_a_run_with_a_pipe_in_place_of_its_status_or_lock_has_failed(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    run.config_file.touch()
    Status(state="running", started=1.0).write(run.status_file)
    for file in (run.lock_file, run.status_file):
        file.unlink(missing_ok=True)
        os.mkfifo(file)
        status = run.status()
        assert status.state == "failed"
        assert f"{file} is" in str(status.error) and "not a regular file" in str(status.error)


def test_too_many_nested_folders_in_a_run_are_an_error(small_run: SmallRun) -> None:
    run = small_run()
    run.path.joinpath(*60 * ["a"]).mkdir(parents=True)
    with pytest.raises(RunError, match="more than 50 nested folders; delete them"):
        run.config()


def test_terminal_escape_codes_are_removed_from_the_error_of_a_run(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    Status(state="failed", error="\x1b]0;title\x07 bad").write(run.status_file)
    assert run.status().error == " ]0;title  bad"


def timing(key: str, value: str) -> str:
    """Return a line of timing.jsonl in which `key` has `value`, a JSON text."""
    values = dict.fromkeys(("step", "seconds", "tokens_per_second", "memory_mb"), "1")
    items = [f'"{name}": {number}' for name, number in {**values, key: value}.items()]
    return f"{{{', '.join(items)}}}\n"


READERS: dict[str, Callable[[RunDirectory], object]] = {
    "plan.json": lambda run: read_plan(run.path),
    "metrics.jsonl": RunDirectory.metrics,
    "timing.jsonl": RunDirectory.timing,
    "evaluation.json": RunDirectory.rows,
    "ngrams.json": RunDirectory.ngrams,
    "mirror.json": MirrorFile,
    "config.yaml": RunDirectory.config,
    "tokenizer.json": lambda run: load_tokenizer(run.tokenizer_file),
}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("plan.json", "3"),
        ("plan.json", '{"runs": "all"}'),
        ("plan.json", '{"commands": []}'),
        ("plan.json", "[" * 100_000),
        ("plan.json", '{"command": "a", "command": "b"}'),
        ("plan.json", '{"command": "posenc \'x"}'),
        ("plan.json", '{"commands": {"a": "posenc \'x"}}'),
        ("plan.json", '{"about": {"title": "\\u0007"}}'),
        ("plan.json", '{"about": {"interpretation": 5}}'),
        ("plan.json", '{"about": {"limitations": [1]}}'),
        ("plan.json", f'{{"claims": [1{"0" * 5000}]}}'),
        ("metrics.jsonl", '{"step": 1, "loss": 2.0, "loss": 3.0}\n'),
        ("metrics.jsonl", "3\n"),
        ("metrics.jsonl", '{"loss": 1.0}\n'),
        ("metrics.jsonl", '{"step": true}\n'),
        ("metrics.jsonl", '{"step": 1, "loss": NaN}\n'),
        ("metrics.jsonl", '{"step": 1, "loss": 1e400}\n'),
        ("metrics.jsonl", '{"step": 1, "loss": "2.0"}\n'),
        ("metrics.jsonl", '{"step": 1, "validation_loss": [1]}\n'),
        ("timing.jsonl", "[]\n"),
        ("timing.jsonl", '{"step": 1}\n'),
        ("timing.jsonl", timing("tokens_per_second", '"1"')),
        ("timing.jsonl", timing("tokens_per_second", "0")),
        ("timing.jsonl", timing("memory_mb", "[1]")),
        ("timing.jsonl", timing("memory_mb", "1e400")),
        ("metrics.jsonl", f'{{"step": 1{"0" * 400}}}\n'),
        ("evaluation.json", '{"rows": [{}]}'),
        ("ngrams.json", '{"rows": [{"order": 2, "data": "f", "loss": 1.0}]}'),
        ("mirror.json", "[]"),
        ("mirror.json", '{"entries": [{"row": {}}]}'),
        ("mirror.json", '{"entries": [{"step": 1, "row": {}}]}'),
        ("mirror.json", '{"entries": [{"step": 1, "row": {"extrapolation/length": []}}]}'),
        ("mirror.json", '{"identity": {"id": "../x"}}'),
        ("mirror.json", '{"identity": {"job_type": 1}}'),
        ("mirror.json", json.dumps({"file_sizes": {"x" * 300: 1}})),
        ("config.yaml", "planned: {}"),
        ("config.yaml", "3"),
        ("config.yaml", "a: " + "[" * 5000),
        ("config.yaml", "about: &about {title: *about}"),
        ("tokenizer.json", '{"kind": "unknown", "state": {}}'),
        ("tokenizer.json", '{"kind": "subword", "state": {"serialized": {}}}'),
    ],
)
def test_a_file_with_invalid_contents_is_named(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(RunError, match=name):
        READERS[name](RunDirectory(tmp_path))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"loss": float("nan")}, "NaN is not a finite number"),
        ({"count": "2"}, "invalid: count"),
        ({"length": 10**400}, "an integer has more than 300 digits"),
        ({"length": 2**63}, "invalid: length"),
        ({"length": True}, "invalid: length"),
        ({"length": 0}, "invalid: length"),
        ({"at_tokens": [1]}, "invalid: at_tokens"),
        ({"at_tokens": -1}, "invalid: at_tokens"),
        ({"at_tokens": 1.5}, "invalid: at_tokens"),
        ({"budget_seconds": {}}, "invalid: budget_seconds"),
        ({"perplexity": [1]}, "invalid: perplexity"),
        ({"tokens_per_second": "1"}, "invalid: tokens_per_second"),
        ({"peak_memory_mb": 0}, "invalid: peak_memory_mb"),
        ({"swap": "\x07"}, "invalid: swap"),
        ({"data_name": "\ufffe"}, "invalid: data_name"),
        ({"loss": 1.5 + 1e-7}, "a loss is inconsistent with the sum"),
        ({"perplexity": exp(1.5 + 1e-7)}, "a perplexity is inconsistent with the sum"),
        (
            {"perplexity_per_word": -1.0, "words": 3},
            "a perplexity_per_word is inconsistent with the sum",
        ),
    ],
)
def test_an_evaluation_row_with_an_impossible_value_is_an_error(
    tmp_path: Path, changes: dict[str, object], reason: str
) -> None:
    keys = {"data": "f", "data_name": "text", "split": "test", "protocol": "sliding"}
    row = {**keys, "stride": 8, "swap": None, "length": 16, "count": 2, "sum": 3.0, "loss": 1.5}
    row |= {"perplexity": exp(1.5)}
    run = RunDirectory(tmp_path)
    run.evaluation_file.write_text(json.dumps({"rows": [row]}))
    assert run.rows() == [row]
    run.evaluation_file.write_text(json.dumps({"rows": [{**row, **changes}]}))
    with pytest.raises(RunError, match=reason):
        run.rows()
    run.evaluation_file.write_text(json.dumps({"rows": [row, row]}))
    with pytest.raises(RunError, match="the same row twice"):
        run.rows()


def test_a_training_log_that_does_not_match_the_run_is_an_error(
    finished: RunDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    status, folder = finished.status(), f"outputs_dir={finished.path.parents[1]}"
    timing_log = finished.timing_file.read_text()
    finished.timing_file.write_text(timing_log.replace('per_second": ', 'per_second": 9'))
    assert main(["report", "name=scratch", folder]) == 1
    assert "timing.jsonl is not the log of this run" in capsys.readouterr().err
    finished.timing_file.write_text(timing_log)
    rows = finished.metrics()
    rows[0]["loss"] += 1e-9
    finished.metrics_file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    assert main(["report", "name=scratch", folder]) == 1
    assert "metrics.jsonl is not the log of this run" in capsys.readouterr().err
    with pytest.raises(RunError, match="is not the log of this run"):
        sync_run(finished, offline=True)
    status.replace(state="interrupted").write(finished.status_file)
    assert job([str(finished.path)]) == FAILED
    assert "metrics.jsonl up to step 2 have changed" in str(finished.status().error)
    rows[0]["stopped_early"] = True
    finished.metrics_file.write_text(f"{json.dumps(rows[0])}\n")
    assert main(["evaluate", f"run={finished.path}"]) == 1
    assert "metrics.jsonl up to step 2 have changed" in capsys.readouterr().err


def test_different_tokens_with_the_same_fingerprint_are_not_evaluated_as_the_same_measurement(
    finished: RunDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = finished.rows()
    contents = {"rows": [{**row, "tokens_hash": "0" * 16} for row in rows]}
    finished.evaluation_file.write_text(json.dumps(contents))
    assert main(["evaluate", f"run={finished.path}"]) == 1
    assert "its fingerprint" in capsys.readouterr().err
    finished.evaluation_file.unlink()
    assert main(["evaluate", f"run={finished.path}"]) == 0
    assert [row["loss"] for row in finished.rows()] == [row["loss"] for row in rows]


@pytest.mark.parametrize("row", ['{"seconds": 1.0}', '{"step": "1"}', '{"step": true}'])
def test_a_row_without_a_step_is_named_when_training_resumes(tmp_path: Path, row: str) -> None:
    file = tmp_path / "timing.jsonl"
    file.write_text(f"{row}\n")
    with pytest.raises(RunError, match=r"timing\.jsonl.*a row has no step"):
        truncate_jsonl(file, 1)
    assert file.read_text() == f"{row}\n"


@pytest.mark.parametrize("name", ["../../etc", "..", "", "sub/run", "x" * 5000])
def test_a_plan_names_runs_and_no_other_paths(small_run: SmallRun, name: str) -> None:
    run = small_run()
    plan_file = run.path.parent / "plan.json"
    plan_file.write_text(plan_file.read_text().replace(f'"{run.name}"\n', f'"{name}"\n'))
    with pytest.raises(RunError, match="invalid run name"):
        read_plan(run.path.parent)


@pytest.mark.slow
def test_an_edited_run_is_neither_reported_nor_uploaded(
    small_run: SmallRun, capsys: pytest.CaptureFixture[str]
) -> None:
    run = small_run("encoding=rope", "logger=wandb")
    assert job([str(run.path)]) == FINISHED
    run.config_file.write_text(run.config_file.read_text().replace("\nseed: 1\n", "\nseed: 7\n"))
    folder = [f"outputs_dir={run.path.parents[1]}", "name=scratch"]
    assert main(["report", *folder]) == 1
    assert "has been edited" in capsys.readouterr().err
    with pytest.raises(RunError, match="has been edited"):
        sync_run(run, offline=True)
