"""Planning writes all runs or none, and finds a run that was planned before."""

import shutil
from pathlib import Path
from typing import Any, cast

import pytest
from omegaconf import OmegaConf

from posenc.config.component_types import user_targets
from posenc.config.errors import ConfigError, RunError
from posenc.runs.files import read_json
from posenc.runs.lock import lock
from posenc.runs.plan_file import update_plan
from posenc.runs.run_directory import RunDirectory, list_runs
from posenc.runs.saved_config import write_config
from posenc.runs.status import Status
from posenc.runs.trusted_code import is_trusted
from posenc.sweeps import plan as plan_module
from posenc.sweeps import run_writer
from posenc.sweeps.plan import plan
from posenc.training.checkpoint import Checkpoint


def planned(jobs: list[list[str]]) -> list[RunDirectory]:
    return [job.run for job in plan(jobs, [], "posenc train ...", lambda _: None)]


def test_a_plan_writes_the_configuration_of_every_run(small_job: list[str], tmp_path: Path) -> None:
    jobs = [[*small_job, f"encoding={name}", "name=two"] for name in ("alibi", "nope")]
    runs = planned(jobs)
    assert [run.name.rsplit("-", 1)[0] for run in runs] == ["alibi-L24-s1", "nope-L24-s1"]
    for run in runs:
        saved = OmegaConf.load(run.config_file)
        assert saved.planned.run == run.name
        assert saved.planned.lengths == [24, 96]
        assert saved.choices.data == "text"
        assert run.status().state == "pending"
        assert run.tokenizer_file.exists()
    written = read_json(tmp_path / "outputs" / "two" / "plan.json")
    assert written["runs"] == [run.name for run in runs]
    assert written["command"] == "posenc train ..."


def test_one_invalid_job_prevents_the_whole_plan(small_job: list[str], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="heads=5"):
        planned([small_job, [*small_job, "model.heads=5"]])
    assert not (tmp_path / "outputs").exists()


@pytest.mark.parametrize("damage", ["link", "corrupt", "folder"])
def test_a_corrupt_plan_prevents_planning(
    small_job: list[str], tmp_path: Path, damage: str
) -> None:
    file = tmp_path / "outputs" / "scratch" / "plan.json"
    file.parent.mkdir(parents=True)
    if damage == "link":
        file.symlink_to(tmp_path / "elsewhere.json")
    elif damage == "corrupt":
        file.write_text("{")
    else:
        file.mkdir()
    with pytest.raises(RunError, match=r"plan\.json"):
        planned([small_job])
    assert list(file.parent.iterdir()) == [file]
    assert not (tmp_path / "elsewhere.json").exists()


@pytest.mark.parametrize("name", ["", "checkpoints", "longrope/evaluation"])
def test_nothing_is_written_through_a_link_to_a_folder(
    small_job: list[str], tmp_path: Path, name: str
) -> None:
    (run,) = planned([small_job])
    shutil.rmtree(run.path)
    (tmp_path / "elsewhere").mkdir()
    (run.path / name).parent.mkdir(parents=True, exist_ok=True)
    (run.path / name).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(RunError, match="is a symbolic link"):
        planned([small_job])
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_targets_that_jobs_share_are_looked_up_once(
    small_job: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "planned_with.py").write_text(
        "from posenc.encodings.base import Encoding\n\n\n"
        "class Mine(Encoding):\n"
        "    def bias(self, head, distance, pos_q):\n"
        "        return -0.5 * distance\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    looked_up: list[int] = []
    monkeypatch.setattr(
        plan_module, "user_targets", lambda job: (looked_up.append(1), user_targets(job))[1]
    )
    overrides = [*small_job, "encoding=nope", "encoding._target_=planned_with.Mine"]
    planned([[*overrides, f"tokens={tokens}"] for tokens in (7680, 3840, 1920)])
    planned([[*small_job, f"tokens={tokens}"] for tokens in (7680, 3840)])
    assert len(looked_up) == 1 and is_trusted("target", "planned_with.Mine")


def test_notations_of_the_same_number_are_the_same_run(small_job: list[str]) -> None:
    (run,), (other,) = (planned([[*small_job, f"tokens={n}"]]) for n in ("7680", "7.68e3"))
    assert run.path == other.path


def test_a_later_plan_adds_its_runs(small_job: list[str], tmp_path: Path) -> None:
    (first,), (second,) = (planned([[*small_job, f"seed={seed}"]]) for seed in (1, 2))
    written = read_json(tmp_path / "outputs" / "scratch" / "plan.json")
    assert written["runs"] == [first.name, second.name]
    assert list_runs(tmp_path / "outputs" / "scratch")[0].path == first.path


def test_planning_again_keeps_the_status_of_a_run(small_job: list[str]) -> None:
    (run,) = planned([small_job])
    Status(state="interrupted", step=7).write(run.status_file)
    planned([small_job])
    assert run.status() == Status(state="interrupted", step=7)


def test_premises_claims_and_published_curves_are_in_the_plan_and_change_no_run(
    small_job: list[str], tmp_path: Path
) -> None:
    claim = (
        "{statement: a, left: {perplexity: {encoding: rope, length: 2L}}, is: below, right: 9.5}"
    )
    curve = "{train_length: 24, unit: perplexity, source: b, values: {24: 19.73}}"
    (without_claims,) = planned([small_job])
    config = without_claims.config_file.read_text()
    texts = [f"premises=[{claim}]", f"claims=[{claim}]", f"published=[{curve}]"]
    (run,) = planned([[*small_job, *texts]])
    assert run.path == without_claims.path and run.config_file.read_text() == config
    written = read_json(tmp_path / "outputs" / "scratch" / "plan.json")
    for key in ("premises", "claims"):
        assert written[key][0]["left"] == {"perplexity": {"encoding": "rope", "length": "2L"}}
    assert written["published"][0]["values"] == {"24": 19.73}


def test_planning_again_replaces_premises_and_claims(small_job: list[str], tmp_path: Path) -> None:
    for limit in (9.5, 8.5):
        claim = f"{{statement: a, left: {{loss: {{length: L}}}}, is: below, right: {limit}}}"
        planned([[*small_job, f"premises=[{claim}]", f"claims=[{claim}]"]])
        written = read_json(tmp_path / "outputs" / "scratch" / "plan.json")
        assert (written["premises"][0]["right"], written["claims"][0]["right"]) == (limit, limit)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("claims=[{statement: a}]", r"claims\[0\].*left"),
        ("claims=3", "claims=3 must be a list"),
        ("premises=[{statement: a}]", r"premises\[0\].*left"),
        ("published=[3]", "published.0.: 3 must be a mapping"),
    ],
)
def test_an_invalid_claim_prevents_the_plan(
    small_job: list[str], tmp_path: Path, override: str, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        planned([[*small_job, override]])
    assert not (tmp_path / "outputs").exists()


def test_a_run_that_another_process_runs_with_another_evaluation_is_skipped_with_a_reason(
    small_job: list[str],
) -> None:
    (run,) = planned([small_job])
    config = run.config_file.read_bytes()
    with lock(run.lock_file):
        (same,) = plan([small_job], [], "posenc train ...", lambda _: None)
        longer = [*small_job, "evaluation.protocols=[by_position]"]
        (other,) = plan([longer], [], "posenc train ...", lambda _: None)
    assert same.problem is None
    assert other.problem and "evaluation" in other.problem and "rerun" in other.problem
    assert run.config_file.read_bytes() == config


def test_a_run_whose_settings_another_command_has_changed_counts_as_interrupted(
    small_job: list[str],
) -> None:
    (first,) = plan([small_job], [], "posenc train ...", lambda _: None)
    planned([small_job])
    assert first.final_status().state == "pending"  # the same settings
    planned([[*small_job, "validation.tokens=24"]])
    status = first.final_status()
    assert status.state == "interrupted" and "another command" in (status.error or "")


def test_settings_that_a_resumed_run_keeps_are_named(
    small_job: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (run,) = planned([small_job])
    changed = [*small_job, "validation.tokens=24", "checkpoint.every_seconds=7"]
    with monkeypatch.context() as context:
        context.setattr(run_writer, "list_checkpoints", lambda _: [Checkpoint(run.path, 3, "")])
        (resumed,) = plan([changed], [], "posenc train ...", lambda _: None)
    assert resumed.kept_settings == ("checkpoint", "validation")
    assert run.config_dict()["checkpoint"]["every_seconds"] != 7


def test_a_run_is_not_resumed_with_a_different_tokenizer(
    small_job: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another version of `tokenizers` may train a different one on the same text."""
    (run,) = planned([small_job])
    config = run.config()
    config.planned.tokenizer = "0" * 64
    values = cast("dict[str, Any]", OmegaConf.to_container(config))
    write_config(run.config_file, values)
    planned([small_job])  # without a checkpoint, it starts again
    write_config(run.config_file, values)
    monkeypatch.setattr(run_writer, "list_checkpoints", lambda _: [Checkpoint(run.path, 3, "")])
    with pytest.raises(ConfigError, match="different tokenizer"):
        planned([small_job])


def test_a_copy_with_a_different_tokenizer_is_not_reused(
    small_job: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (run,) = planned([small_job])
    copied: list[Any] = []
    monkeypatch.setattr(run_writer, "list_checkpoints", lambda _: [Checkpoint(run.path, 3, "")])
    monkeypatch.setattr(run_writer, "finished_copies", lambda *_: [run])
    monkeypatch.setattr(run_writer, "copy_run", lambda source, _: copied.append(source))
    planned([[*small_job, "name=second"]])
    assert copied == [run]
    config = run.config()
    config.planned.tokenizer = "0" * 64
    write_config(run.config_file, cast("dict[str, Any]", OmegaConf.to_container(config)))
    planned([[*small_job, "name=third"]])
    assert copied == [run]


def test_a_command_without_an_experiment_keeps_the_claims_of_the_plan(
    small_job: list[str], tmp_path: Path
) -> None:
    folder, claims = tmp_path / "e", [{"statement": "a"}]
    update_plan(folder, {"claims": claims, "size": "laptop"}, "posenc train a", ["a"])
    update_plan(folder, {"claims": None, "size": "paper"}, "posenc train b", ["b"])
    plan_file = read_json(folder / "plan.json")
    assert plan_file["claims"] == claims and plan_file["size"] == "paper"


def test_an_unfinished_copy_of_a_run_is_not_listed(small_job: list[str]) -> None:
    (run,) = planned([small_job])
    shutil.copytree(run.path, run.path.with_name(".copy-abc"))
    assert [other.path for other in list_runs(run.path.parent)] == [run.path]


def test_a_finished_run_without_a_checkpoint_is_not_trained_again(small_job: list[str]) -> None:
    """Its missing evaluation rows could only be computed with its weights."""
    (run,) = planned([small_job])
    run.status().replace(state="finished").write(run.status_file)
    log = run.path / "metrics.jsonl"
    log.write_text("{}\n")
    with pytest.raises(RunError, match="no checkpoint"):
        planned([small_job])
    assert run.status().state == "finished" and log.exists()
