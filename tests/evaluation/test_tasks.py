"""The protocol `tasks`: the scores of known predictors, and the rows of a trained run."""

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from posenc.cli import main
from posenc.config.components import build
from posenc.config.compose import compose
from posenc.data.tasks.task_data import TaskData
from posenc.data.tokenizers.symbols import SymbolTokenizer
from posenc.evaluation.scoring import Measurement, evaluation_row, measure
from posenc.evaluation.windows import Budget, TaskWindows
from posenc.jobs.exit_codes import FINISHED
from posenc.jobs.job import main as job
from posenc.model.transformer import LinearHead
from posenc.runs.run_directory import RunDirectory
from posenc.sweeps.plan import plan

NAMES = ["copy", "flip_flop", "mqar", "passkey"]
TEXT_FILE = Path(__file__).parents[2] / "constraints.txt"


class Predictor(nn.Module):
    """A stand-in for a model: `guess` returns logits [B, T, V] for tokens [B, T]."""

    def __init__(self, guess: Callable[[Tensor], Tensor], vocab_size: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, vocab_size)
        self.head = LinearHead(vocab_size, vocab_size)
        nn.init.eye_(self.head.weight)
        self.guess, self.device = guess, torch.device("cpu")

    def hidden_states(self, tokens: Tensor, scored: Tensor) -> Tensor:
        return self.guess(tokens)[scored]


def build_task_data(name: str) -> TaskData:
    task = build(compose("train", [f"data=task_{name}"]).data, name="data")
    return TaskData(task, SymbolTokenizer(task.symbols))


def measured(data: TaskData, guess: Callable[[Tensor], Tensor]) -> tuple[TaskWindows, Measurement]:
    model, windows = Predictor(guess, data.vocab_size), TaskWindows(data.examples("test", 64))
    result = measure(
        model,  # pyrefly: ignore[bad-argument-type]
        windows,
        batch_tokens=1000,
        precision="float32",
        on_batch=lambda *_: True,
        budget=Budget(),
    )
    assert result is not None
    return windows, result


def perfect_logits(data: TaskData, tokens: Tensor) -> Tensor:
    """Logits of 50 for the next tokens of the examples whose inputs are the rows of `tokens`."""
    examples, *_ = data.examples("test", 64)
    targets = {tuple(example[:-1]): example for example in examples.tolist()}
    rows = [targets[tuple(row[1:])] for row in tokens.tolist()]
    return 50.0 * nn.functional.one_hot(torch.tensor(rows), data.vocab_size)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_perfect_predictor_has_accuracy_1(name: str) -> None:
    data = build_task_data(name)
    windows, result = measured(data, lambda tokens: perfect_logits(data, tokens))
    count = int(data.examples("test", 64).scored.sum())
    actual = evaluation_row({}, result, windows, data.name)
    assert (actual["accuracy"], actual["exact"], actual["count"]) == (1, 1, count)
    assert actual["loss"] == pytest.approx(0, abs=1e-6)
    assert actual["words"] is actual["perplexity_per_byte"] is None


@pytest.mark.parametrize("name", NAMES)
def test_a_random_predictor_has_chance_level_accuracy(name: str) -> None:
    data, generator = build_task_data(name), torch.Generator().manual_seed(1)

    def guess(tokens: Tensor) -> Tensor:
        return torch.randn(*tokens.shape, data.vocab_size, generator=generator)

    windows, result = measured(data, guess)
    actual, chance = evaluation_row({}, result, windows, data.name), 1 / data.vocab_size
    deviation = math.sqrt(chance * (1 - chance) / actual["count"])
    assert abs(actual["accuracy"] - chance) < 5 * deviation
    assert actual["exact"] <= actual["accuracy"]


def test_a_sequence_with_one_wrong_answer_is_not_exact() -> None:
    data = build_task_data("copy")

    def all_but_one(tokens: Tensor) -> Tensor:
        """Correct, except for the first answer where the first letter is even (in about half)."""
        logits = perfect_logits(data, tokens)
        wrong = tokens[:, 1] % 2 == 0
        logits[wrong, 32] = 0
        logits[wrong, 32, 1] = 50
        return logits

    windows, result = measured(data, all_but_one)
    examples, *_ = data.examples("test", 64)
    fraction = float((examples[:, 0] % 2 == 0).mean())
    actual = evaluation_row({}, result, windows, data.name)
    assert actual["exact"] == pytest.approx(1 - fraction)
    assert actual["accuracy"] == pytest.approx(1 - fraction / 31)


def test_the_hash_depends_on_the_scored_sequences() -> None:
    data = build_task_data("copy")
    windows = [TaskWindows(data.examples(split, 64)) for split in ("test", "test", "validation")]
    every, first = np.arange(500), np.arange(100)
    digest, same, other = (w.digest(every) for w in windows)
    assert digest == same != other
    assert windows[0].digest(first[::-1]) == windows[0].digest(first) != digest


@pytest.fixture(scope="module")
def task_run(task_job: list[str]) -> RunDirectory:
    run = plan([task_job], [], "test", print)[0].run
    assert job([str(run.path)]) == FINISHED, run.status().error
    return run


@pytest.mark.slow
def test_a_run_on_a_task_has_accuracies_at_every_length(
    task_run: RunDirectory,
) -> None:
    assert len(task_run.metrics()) == 40
    assert task_run.metrics()[-1]["validation_loss"] < task_run.metrics()[9]["validation_loss"]
    assert [row["length"] for row in task_run.rows()] == [24, 96]
    for actual, letters in zip(task_run.rows(), (11, 47), strict=True):
        assert (actual["protocol"], actual["data_name"]) == ("tasks", "copy")
        assert actual["count"] == actual["full_count"] == 40 * letters
        assert 0 <= actual["exact"] <= actual["accuracy"] <= 1

    overrides = [f"run={task_run.path}", "evaluation.lengths=[24,48]"]
    before = task_run.rows()[0]
    assert main(["evaluate", *overrides]) == 0
    assert [row["length"] for row in task_run.rows()] == [24, 48, 96]
    unchanged = ("sum", "count", "accuracy", "exact", "tokens_hash")
    assert [task_run.rows()[0][name] for name in unchanged] == [before[name] for name in unchanged]
    assert main(["evaluate", *overrides, "data=task_copy", "data.examples=10"]) == 0
    assert sorted({row["count"] for row in task_run.rows()}) == [110, 230, 440, 920, 1880]
    assert main(["report", "name=scratch", f"outputs_dir={task_run.path.parents[1]}"]) == 0


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["evaluation=nonoverlapping"], "do not apply to the task 'copy'"),
        (["evaluation.lengths=[2]"], "length 2 is too short for the task 'copy'"),
        (["tokenizer=byte"], "omit tokenizer"),
        (["data=task_copy", "data.alphabet_size=3"], "5 symbols, which differ from the 18"),
        (["data=text", f"data.test={TEXT_FILE}"], "is text, but the run was trained on a task"),
    ],
)
def test_settings_incompatible_with_a_run_on_a_task_are_errors(
    overrides: list[str], message: str, task_run: RunDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["evaluate", f"run={task_run.path}", *overrides]) == 2
    printed = capsys.readouterr().err
    assert message in " ".join(printed.split()) and "Traceback" not in printed


def test_a_language_model_is_evaluated_on_passkeys_and_recall_in_its_own_tokens(
    short_run: RunDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["evaluate", f"run={short_run.path}", "evaluation.lengths=[40,80]"]
    assert main([*command, "data=task_passkey", "data.vocab_size=null", "data.examples=30"]) == 0
    rows = [row for row in short_run.rows() if row["protocol"] == "tasks"]
    assert [(row["length"], row["count"], row["data_name"]) for row in rows] == [
        (40, 150, "passkey"),
        (80, 150, "passkey"),
    ]
    nulls = ["data.keys=null", "data.values=null"]
    assert main([*command, "data=task_mqar", *nulls, "data.examples=30"]) == 0
    recall = [row for row in short_run.rows() if row["data_name"] == "mqar"]
    assert [(row["length"], row["count"]) for row in recall] == [(40, 60), (80, 150)]
    capsys.readouterr()
    for overrides, message in (
        (["evaluation=tasks"], "is text"),
        (["data=task_passkey"], "data.vocab_size=64: the run has its own vocabulary"),
        (["data=task_mqar"], "set data.keys=null data.values=null"),
        (["data=task_copy"], "has its own symbols"),
    ):
        assert main([*command, *overrides]) == 2
        assert message in " ".join(capsys.readouterr().err.split())
