"""The protocol tasks: what a known predictor scores, and what a trained run's rows say."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from posenc.cli import main
from posenc.config.components import build
from posenc.config.compose import compose
from posenc.data.tasks.data import TaskData
from posenc.data.tokenizers.symbols import SymbolTokenizer
from posenc.evaluation.measure import Measurement, measure
from posenc.evaluation.protocols.tasks import TaskWindows
from posenc.evaluation.rows import row
from posenc.evaluation.score import losses_and_hits
from posenc.model.transformer import LinearHead
from posenc.runs.run_directory import RunDirectory
from posenc.sweeps.execute import FINISHED
from posenc.sweeps.job import main as job
from posenc.sweeps.plan import plan

NAMES = ["copy", "flip_flop", "mqar", "passkey"]


class Predictor(nn.Module):
    """Stands in for a model: `guess` gives logits [B, T, vocabulary] for tokens [B, T]."""

    def __init__(self, guess: Callable[[Tensor], Tensor], vocabulary: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, vocabulary)
        self.head = LinearHead(vocabulary, vocabulary)
        nn.init.eye_(self.head.weight)
        self.guess, self.device = guess, torch.device("cpu")

    def hidden(self, tokens: Tensor, scored: Tensor) -> Tensor:
        return self.guess(tokens)[scored]


def data_of(name: str) -> TaskData:
    task = build(compose("train", [f"data=task_{name}"]).data, name="data")
    return TaskData(task, SymbolTokenizer(task.symbols))


def measured(data: TaskData, guess: Callable[[Tensor], Tensor]) -> tuple[TaskWindows, Measurement]:
    model, windows = Predictor(guess, data.vocab_size), TaskWindows(data.examples("test", 64))
    result = measure(
        model,  # pyrefly: ignore[bad-argument-type]
        windows,
        batch_tokens=1000,
        precision="float32",
        after_batch=lambda *_: True,
        score=losses_and_hits,
    )
    assert result is not None
    return windows, result


def next_token(data: TaskData, tokens: Tensor) -> Tensor:
    """Logits of 50 for what follows in the example that starts like a row of `tokens`."""
    drawn, *_ = data.examples("test", 64)
    follows = {tuple(example[:-1]): example for example in drawn.tolist()}
    rows = [follows[tuple(row[1:])] for row in tokens.tolist()]
    return 50.0 * nn.functional.one_hot(torch.tensor(rows), data.vocab_size)


@pytest.mark.parametrize("name", NAMES)
def test_a_perfect_predictor_has_accuracy_1(name: str) -> None:
    data = data_of(name)
    windows, result = measured(data, lambda tokens: next_token(data, tokens))
    count = int(data.examples("test", 64).scored.sum())
    found = row({}, result, windows, data.name)
    assert (found["accuracy"], found["exact"], found["count"]) == (1, 1, count)
    assert found["loss"] == pytest.approx(0, abs=1e-6)
    assert found["words"] is found["perplexity_per_byte"] is None


@pytest.mark.parametrize("name", NAMES)
def test_a_random_predictor_has_the_accuracy_of_chance(name: str) -> None:
    data, generator = data_of(name), torch.Generator().manual_seed(1)

    def guess(tokens: Tensor) -> Tensor:
        return torch.randn(*tokens.shape, data.vocab_size, generator=generator)

    windows, result = measured(data, guess)
    found, chance = row({}, result, windows, data.name), 1 / data.vocab_size
    spread = math.sqrt(chance * (1 - chance) / found["count"])
    assert abs(found["accuracy"] - chance) < 5 * spread
    assert found["exact"] <= found["accuracy"]


def test_one_wrong_answer_leaves_a_sequence_out_of_exact() -> None:
    data = data_of("copy")

    def all_but_one(tokens: Tensor) -> Tensor:
        """Right but for the first answer of every second sequence, by its first letter."""
        logits = next_token(data, tokens)
        wrong = tokens[:, 1] % 2 == 0
        logits[wrong, 32] = 0
        logits[wrong, 32, 1] = 50
        return logits

    windows, result = measured(data, all_but_one)
    drawn, *_ = data.examples("test", 64)
    share = float((drawn[:, 0] % 2 == 0).mean())
    found = row({}, result, windows, data.name)
    assert found["exact"] == pytest.approx(1 - share)
    assert found["accuracy"] == pytest.approx(1 - share / 31)


def test_the_hash_is_of_what_is_asked() -> None:
    data = data_of("copy")
    windows = [TaskWindows(data.examples(split, 64)) for split in ("test", "test", "validation")]
    every, some = np.arange(500), np.arange(100)
    one, same, other = (of.digest(every) for of in windows)
    assert one == same != other
    assert windows[0].digest(some[::-1]) == windows[0].digest(some) != one


@pytest.fixture(scope="module")
def task_run(task_job: list[str]) -> RunDirectory:
    run = plan([task_job], [], "test", print)[0].run
    assert job([str(run.path)]) == FINISHED, run.status().error
    return run


def test_a_run_on_a_task_says_how_it_answers_at_every_length(
    task_run: RunDirectory,
) -> None:
    assert len(task_run.metrics()) == 40
    assert task_run.metrics()[-1]["validation_loss"] < task_run.metrics()[9]["validation_loss"]
    assert [row["length"] for row in task_run.rows()] == [24, 96]
    for found, letters in zip(task_run.rows(), (11, 47), strict=True):
        assert (found["protocol"], found["data_name"]) == ("tasks", "copy")
        assert found["count"] == found["full_count"] == 40 * letters
        assert 0 <= found["exact"] <= found["accuracy"] <= 1

    again = [f"run={task_run.path}", "evaluation.lengths=[24,48]"]
    before = task_run.rows()[0]
    assert main(["evaluate", *again]) == 0
    assert [row["length"] for row in task_run.rows()] == [24, 48, 96]
    same = ("sum", "count", "accuracy", "exact", "tokens_hash")
    assert [task_run.rows()[0][name] for name in same] == [before[name] for name in same]
    assert main(["evaluate", *again, "data=task_copy", "data.examples=10"]) == 0
    assert sorted({row["count"] for row in task_run.rows()}) == [110, 230, 440, 920, 1880]
    assert main(["report", "name=scratch", f"outputs_dir={task_run.path.parents[1]}"]) == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["evaluation=nonoverlapping"], "the task 'copy' is no text; give evaluation=tasks"),
        (["evaluation.lengths=[2]"], "length 2 is too short for the task 'copy'"),
        (["tokenizer=byte"], "leave tokenizer out"),
        (["data=task_copy", "data.letters=3"], "5 symbols, which are not the 18"),
    ],
)
def test_what_a_run_on_a_task_cannot_answer_is_refused(
    words: list[str], message: str, task_run: RunDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["evaluate", f"run={task_run.path}", *words]) == 2
    told = capsys.readouterr().err
    assert message in " ".join(told.split()) and "Traceback" not in told


def test_a_model_of_text_is_asked_for_a_passkey_in_its_own_tokens(
    short_run: RunDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["evaluate", f"run={short_run.path}", "evaluation.lengths=[40,80]"]
    assert main([*words, "data=task_passkey", "data.vocabulary=null", "data.examples=30"]) == 0
    rows = [row for row in short_run.rows() if row["protocol"] == "tasks"]
    assert [(row["length"], row["count"], row["data_name"]) for row in rows] == [
        (40, 150, "passkey"),
        (80, 150, "passkey"),
    ]
    capsys.readouterr()
    for more, message in (
        (["evaluation=tasks"], "is text, and only a task has 'tasks'"),
        (["data=task_passkey"], "data.vocabulary=64: the run has tokens of its own"),
        (["data=task_copy"], "symbols of its own"),
    ):
        assert main([*words, *more]) == 2
        assert message in " ".join(capsys.readouterr().err.split())
