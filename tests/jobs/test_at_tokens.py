"""`evaluation.at_tokens`: weights from several points in training are saved and evaluated."""

from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import torch
from omegaconf import DictConfig
from torch import Tensor

from posenc.cli.main import main as posenc
from posenc.config.errors import ConfigError
from posenc.config.steps import evaluated_steps
from posenc.encodings.rope import Rope
from posenc.jobs.exit_codes import FINISHED, INTERRUPTED
from posenc.jobs.job import main as job
from posenc.runs.evaluation_rows import measurement_key
from posenc.runs.loss_arrays import read_arrays
from posenc.runs.run_directory import RunDirectory
from posenc.sweeps.plan import plan
from posenc.training.checkpoint import (
    latest_checkpoint,
    list_checkpoints,
    list_weights,
    save_weights,
)

Plan = Callable[..., RunDirectory]
MEASURED = ("sum", "count", "tokens_hash")
BUDGETS = "evaluation.at_tokens=[960,1920]"
"""After 5 and 10 of 20 steps."""
SWAPS = "evaluation.swaps=[none,window,log_n]"
DROPOUT = ("encoding=t5", "model.dropout=0.2", BUDGETS)
"""With dropout, the weights depend on every random draw in training."""


@pytest.fixture(scope="module")
def planned(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Plan:
    """Plans runs of 20 steps in one folder, so that they share the prepared text."""
    folder = tmp_path_factory.mktemp("budgets")
    for split, size in (("train", 20_000), ("validation", 397)):
        (folder / f"{split}.txt").write_bytes((corpus / f"{split}.txt").read_bytes()[:size])
    model = {"width": 32, "layers": 1, "heads": 4, "feed_forward": 32}
    small = [
        *(f"model.{name}={value}" for name, value in model.items()),
        "train_length=24",
        "tokens=3840",
        "batch_tokens=192",
        "evaluation.factors=[1,2]",
        "data=text",
        *(f"data.{split}={folder}/{split}.txt" for split in ("train", "validation")),
        "tokenizer=byte",
        "ngram_order=null",
        "validation.every_tokens=null",
        "trainer=cpu",
        "logger=none",
        f"outputs_dir={folder}/outputs",
    ]
    return lambda *overrides: plan([[*small, *overrides]], [], "test", lambda message: None)[0].run


@pytest.fixture(scope="module")
def uninterrupted(planned: Plan) -> RunDirectory:
    return finished(planned(*DROPOUT, "name=uninterrupted"))


def finished(run: RunDirectory) -> RunDirectory:
    assert job([str(run.path)]) == FINISHED, run.status().error
    return run


def stop_after(run: RunDirectory, checks: int) -> None:
    """Stop the job as if its launcher had died after `checks` checks, one per step or batch."""
    calls = count()
    assert job([str(run.path)], lambda: next(calls) < checks) == INTERRUPTED


def measured(run: RunDirectory) -> dict[tuple[Any, ...], list[Any]]:
    """Return the MEASURED values of each row by its key, which must be unique."""
    rows = run.rows()
    by_key = {measurement_key(row): [row[name] for name in MEASURED] for row in rows}
    assert len(by_key) == len(rows)
    return by_key


def test_budgets_do_not_change_training(planned: Plan, uninterrupted: RunDirectory) -> None:
    plain = finished(planned(*DROPOUT, "evaluation.at_tokens=[]", "name=plain"))
    checkpoints = [latest_checkpoint(run.checkpoints) for run in (uninterrupted, plain)]
    with_budgets, without = (checkpoint.weights() for checkpoint in checkpoints if checkpoint)
    assert with_budgets.keys() == without.keys()
    assert all(torch.equal(with_budgets[name], without[name]) for name in without)
    assert uninterrupted.metrics_file.read_text() == plain.metrics_file.read_text()
    final = {key: sums for key, sums in measured(uninterrupted).items() if key[-1] is None}
    assert final == measured(plain)
    assert uninterrupted.name == plain.name


def test_encodings_are_evaluated_with_the_training_progress_of_their_weights(
    planned: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = planned("encoding=rope", BUDGETS, SWAPS, "name=progress")
    fractions: list[float] = []
    rotate = Rope.rotate

    def set_training_progress(self: Any, fraction: float) -> None:
        self.fraction = fraction

    def recorded(self: Any, *inputs: Any) -> tuple[Tensor, Tensor]:
        if not self.training:
            fractions.append(self.fraction)
        return rotate(self, *inputs)

    monkeypatch.setattr(Rope, "set_training_progress", set_training_progress)
    monkeypatch.setattr(Rope, "rotate", recorded)
    finished(run)
    assert {*fractions} == {5 / 20, 10 / 20, 1.0}


@pytest.mark.slow
def test_rows_at_a_budget_equal_those_of_a_run_that_ends_there(planned: Plan) -> None:
    """With a constant schedule, the first 10 of 20 steps are those of a run of 10 steps."""
    constant = ("encoding=rope", "schedule=constant", "schedule.warmup_fraction=0")
    run = finished(planned(*constant, BUDGETS, SWAPS, "name=long"))
    at_960 = "evaluation.at_tokens=[960]"
    short = finished(planned(*constant, "tokens=1920", at_960, SWAPS, "name=short"))
    rows = {key: sums for key, sums in measured(run).items() if key[-1] is not None}
    assert {(key[5], key[6]) for key in rows} == {
        (swap, at_tokens) for swap in (None, "window", "log_n") for at_tokens in (960, 1920)
    }
    assert rows == {(*key[:-1], key[-1] or 1920): n for key, n in measured(short).items()}


def test_losses_by_position_and_block_are_kept_for_each_budget(uninterrupted: RunDirectory) -> None:
    positions = read_arrays(uninterrupted.positions_file)
    blocks = read_arrays(uninterrupted.blocks_file)
    for row in uninterrupted.rows():
        suffix = "" if row["at_tokens"] is None else f".at_tokens={row['at_tokens']}"
        text = f"{row['data']}.validation"
        by_position = positions[f"{text}.{row['length']}{suffix}.sum"]
        assert by_position.sum() == pytest.approx(row["sum"], rel=1e-12)
        by_block = blocks[f"{text}.{row['protocol']}.{row['length']}.-.-{suffix}.sum"]
        assert by_block.sum() == pytest.approx(row["sum"], rel=1e-12)


def test_an_interrupted_run_has_the_rows_of_an_uninterrupted_one(
    planned: Plan, uninterrupted: RunDirectory
) -> None:
    """The run is stopped between the two budgets, and again after it has evaluated the first."""
    run = planned(*DROPOUT, "name=stopped")
    stop_after(run, 9)
    assert [weights.step for weights in list_weights(run.checkpoints)] == [5]
    stop_after(run, 17)
    before = {measurement_key(row): row for row in run.rows()}
    assert {key[-1] for key in before} == {960}
    finished(run)
    assert measured(run) == measured(uninterrupted)
    after = {measurement_key(row): row for row in run.rows()}
    assert all(after[key] == row for key, row in before.items())  # not measured again


def test_a_run_that_lost_its_checkpoints_replaces_the_weights_that_it_kept(
    planned: Plan, uninterrupted: RunDirectory
) -> None:
    run = planned(*DROPOUT, "name=lost")
    stop_after(run, 9)
    for checkpoint in list_checkpoints(run.checkpoints):
        checkpoint.path.unlink()
    finished(run)
    assert [weights.step for weights in list_weights(run.checkpoints)] == [10, 5]
    assert measured(run) == measured(uninterrupted)


def test_kept_weights_can_be_evaluated_later(
    planned: Plan, capsys: pytest.CaptureFixture[str]
) -> None:
    run = finished(planned(*DROPOUT, "name=later"))
    lengths = ["evaluation.lengths=[36]", "evaluation.protocols=[nonoverlapping]"]
    command = ["evaluate", f"run={run.path}", *lengths]
    assert posenc([*command, "evaluation.at_tokens=[960]"]) == 0
    added = [row["at_tokens"] for row in run.rows() if row["length"] == 36]
    assert sorted(added, key=str) == [960, None]
    recall = ["data=task_mqar", "data.keys=null", "data.values=null", "data.examples=9"]
    assert posenc([*command[:3], *recall, "evaluation.at_tokens=[960]"]) == 0
    losses = {row["at_tokens"]: row["loss"] for row in run.rows() if row["data_name"] == "mqar"}
    assert losses.keys() == {960, None}
    assert losses[960] != losses[None]
    assert posenc([*command, "evaluation.at_tokens=[576]"]) == 1
    assert "576" in capsys.readouterr().err


def test_budgets_that_a_trained_run_has_passed_are_rejected(
    planned: Plan, uninterrupted: RunDirectory
) -> None:
    with pytest.raises(ConfigError, match="576"):
        planned(*DROPOUT, "evaluation.at_tokens=[576,960]", "name=uninterrupted")
    assert uninterrupted.status().state == "finished"


@pytest.mark.parametrize(
    ("budgets", "message"),
    [
        ("[0]", "at_tokens=0"),
        ("[-5]", "at_tokens=-5"),
        ("[960,4000]", "at_tokens=4000"),
        ("[960,192]", "960,192"),
        ("[960,970]", "960,970"),
        ("[960,3800]", "3800,3840"),
    ],
)
def test_invalid_budgets_are_rejected(
    configured: Callable[..., DictConfig], budgets: str, message: str
) -> None:
    config = configured("tokens=3840", "batch_tokens=192", f"evaluation.at_tokens={budgets}")
    with pytest.raises(ConfigError, match=message):
        evaluated_steps(config)


def test_budgets_are_rounded_to_steps(configured: Callable[..., DictConfig]) -> None:
    config = configured("tokens=3840", "batch_tokens=192", "evaluation.at_tokens=[1,1000,3840]")
    assert evaluated_steps(config) == {1: 1, 1000: 5, None: 20}


def test_the_command_line_rejects_budgets_that_are_not_integers(
    small_job: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert posenc(["train", *small_job, "evaluation.at_tokens=[0.5]"]) == 2
    assert "evaluation.at_tokens" in capsys.readouterr().err
    assert not list(tmp_path.glob("outputs/scratch/*"))


def test_weights_of_another_training_of_the_run_are_not_evaluated(
    planned: Plan, capsys: pytest.CaptureFixture[str]
) -> None:
    run = finished(planned("encoding=rope", BUDGETS, "name=replaced"))
    weights = next(w for w in list_weights(run.checkpoints) if w.step == 5)
    contents = {**weights.load(), "metrics_digest": "0123456789abcdef"}
    weights.path.unlink()
    save_weights(run.checkpoints, 5, lambda path: torch.save(contents, path))
    evaluate = ["evaluate", f"run={run.path}", "evaluation.at_tokens=[960]"]
    assert posenc([*evaluate, "evaluation.lengths=[31]"]) == 1
    assert "have changed since weights-000000005" in " ".join(capsys.readouterr().err.split())
