"""A mistake in a user's own model, optimizer or encoding gives one message, not a traceback."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from posenc.cli import main

Run = Callable[..., tuple[int, str, str]]

MODELS = """
from functools import wraps
import numpy as np
import torch
from posenc.model.transformer import Transformer


class MissingAttribute(Transformer):
    def hidden_states(self, tokens, pos=None, scored=None):
        return super().hidden_states(tokens, pos, scored) * self.gain


class WithoutScored(Transformer):
    def hidden_states(self, tokens, pos=None):
        return super().hidden_states(tokens, pos)


class ReturnsNumber(Transformer):
    def losses(self, tokens, targets):
        return 3.0


class IgnoresScored(Transformer):
    def hidden_states(self, tokens, pos=None, scored=None):
        return super().hidden_states(tokens, pos)


class UsesNextToken(Transformer):
    def hidden_states(self, tokens, pos=None, scored=None):
        hidden = super().hidden_states(tokens, pos)
        hidden = hidden + hidden.roll(-1, 1)
        return hidden if scored is None else hidden[scored]


class AlwaysDropsOut(Transformer):
    def hidden_states(self, tokens, pos=None, scored=None):
        return torch.nn.functional.dropout(super().hidden_states(tokens, pos, scored))


class OwnGenerator(Transformer):
    @wraps(Transformer.__init__)
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.scale = np.random.default_rng().uniform()

    def hidden_states(self, tokens, pos=None, scored=None):
        return super().hidden_states(tokens, pos, scored) * self.scale


class BufferInForward(Transformer):
    def hidden_states(self, tokens, pos=None, scored=None):
        self.register_buffer("last", torch.ones(()))
        return super().hidden_states(tokens, pos, scored)


class RandomFeatures(OwnGenerator):
    @wraps(Transformer.__init__)
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.scale = torch.rand(())
"""
SCHEDULES = """
import random
from torch.optim.lr_scheduler import LambdaLR, LRScheduler

RATE = [1.0]


class Saved(LRScheduler):
    rate = 1.0

    def get_lr(self):
        self.rate *= 0.98
        return [self.rate for _ in self.base_lrs]


class Unsaved(Saved):
    def state_dict(self):
        return {"last_epoch": self.last_epoch}


def decay(step, total_steps):
    RATE[0] *= 0.98
    return RATE[0]


def noisy(step, total_steps):
    return 1 - 0.5 * random.random()


def random_start(optimizer):
    start = random.random()
    return LambdaLR(optimizer, lambda step: start)
"""
OPTIMIZERS = """
import torch


class NeedsRho(torch.optim.SGD):
    def __init__(self, params, rho):
        super().__init__(params, lr=rho)


class RandomRate(torch.optim.SGD):
    def __init__(self, params, lr=0.1):
        super().__init__(params, lr=lr * torch.rand(()).item())


def number(model):
    return 3


class CountsSteps(torch.optim.SGD):
    def __init__(self, params, lr=0.1):
        super().__init__(params, lr=lr)
        self.steps = 0

    def step(self, closure=None):
        self.steps += 1
        self.param_groups[0]["lr"] = 0.1 / self.steps
        return super().step(closure)
"""
ENCODINGS = """
import torch
from posenc.encodings.base import Encoding


class Table(Encoding):
    def __init__(self, geometry):
        super().__init__(geometry)
        self.table = torch.nn.Parameter(torch.randn(geometry.train_length, geometry.width))

    def embed(self, x, pos):
        return x + self.table[pos.long()].to(x.dtype)


class LimitedTable(Table):
    def max_length(self):
        return len(self.table)


class WrongShape(Encoding):
    def bias(self, head, distance, pos_q):
        return torch.zeros(5, 7)
"""


EXTRA_LINES = {
    "model": "defaults: [tiny, _self_]\n",
    "optimizer": "_partial_: true\n",
    "schedule": "_partial_: true\n",
    "encoding": "",
}
"""Config group -> lines of the YAML file of each of its options."""


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a command in a folder with the modules above and a config for each of their classes."""
    sources = {
        **{"model": MODELS, "optimizer": OPTIMIZERS},
        **{"schedule": SCHEDULES, "encoding": ENCODINGS},
    }
    for group, source in sources.items():
        module = f"own_{group}"
        (tmp_path / f"{module}.py").write_text(source)
        folder = tmp_path / "my_conf" / group
        folder.mkdir(parents=True)
        for line in source.splitlines():
            if line.startswith(("class ", "def ")):
                name = line.split()[1].split("(")[0]
                text = f"# {name}\n{EXTRA_LINES[group]}_target_: {module}.{name}\n"
                (folder / f"{name.lower()}.yaml").write_text(text)
        sys.modules.pop(module, None)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])

    def call(command: str, *overrides: str) -> tuple[int, str, str]:
        code = main([command, "--config-dir", "my_conf", *overrides])
        output = capsys.readouterr()
        assert "Traceback" not in output.err
        return code, output.out, output.err

    return call


@pytest.mark.parametrize("command", ["train", "plan"])
@pytest.mark.parametrize(
    ("model", "parts"),
    [
        ("missingattribute", ["own_model.py, line 10: MissingAttribute", "AttributeError", "gain"]),
        ("withoutscored", ["WithoutScored: TypeError", "scored"]),
        ("returnsnumber", ["ReturnsNumber: losses(tokens, targets) returned float 3.0"]),
        (
            "ignoresscored",
            ["scored=mask) returned the shape [2, 4, 32], expected a tensor of shape [2, 32]"],
        ),
        ("usesnexttoken", ["UsesNextToken: losses(tokens, targets) depends on later tokens"]),
        ("alwaysdropsout", ["AlwaysDropsOut: losses", "random numbers in evaluation"]),
        ("bufferinforward", ["BufferInForward", "cannot load the weights", "persistent=False"]),
        ("owngenerator", ["OwnGenerator: losses", "a second model with the same weights"]),
    ],
)
def test_a_model_that_cannot_be_called_is_an_error_before_training(
    run: Run, small_job: list[str], command: str, model: str, parts: list[str]
) -> None:
    code, _, error = run(command, f"model={model}", *small_job)
    assert code == 2 and all(part in error for part in parts), error
    assert not list(Path("outputs").glob("*/*/config.yaml"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("optimizer", "part"),
    [
        ("needsrho", "rho"),
        ("number", "own_optimizer.number returns int, which is not a torch"),
        ("countssteps", "a resumed run would differ; keep all its state in self.state"),
    ],
)
def test_an_optimizer_that_cannot_be_built_or_resumed_is_an_error(
    run: Run, small_job: list[str], optimizer: str, part: str
) -> None:
    small_model = [override for override in small_job if override.startswith("model.")]
    for command, overrides in (("train", small_job), ("bench", small_model)):
        code, _, error = run(command, f"optimizer={optimizer}", *overrides)
        assert code == 2 and part in error, error


@pytest.mark.parametrize("schedule", ["unsaved", "decay"])
def test_a_schedule_whose_state_is_not_saved_is_an_error(
    run: Run, small_job: list[str], schedule: str
) -> None:
    code, _, error = run("train", f"schedule={schedule}", *small_job)
    assert code == 2 and "different learning rate after a resume" in error, error


@pytest.mark.slow
@pytest.mark.parametrize(
    "component",
    [
        "model=randomfeatures",
        "optimizer=randomrate",
        "schedule=saved",
        "schedule=noisy",
        "schedule=random_start",
    ],
)
def test_random_numbers_and_saved_state_are_allowed(
    run: Run, small_job: list[str], component: str
) -> None:
    code, _, error = run("plan", component, *small_job)
    assert code == 0, error


@pytest.mark.slow
def test_a_users_schedule_draws_the_same_random_numbers_in_every_run(
    run: Run, small_job: list[str]
) -> None:
    rates = []
    for name in ("first", "second"):
        code, _, error = run("train", "schedule=noisy", *small_job, f"name={name}")
        assert code == 0, error
        (log,) = Path("outputs").glob(f"{name}/*/metrics.jsonl")
        rows = [json.loads(line) for line in log.read_text().splitlines()]
        rates.append([row["learning_rate"] for row in rows if "learning_rate" in row])
    assert rates[0] == rates[1] and len(set(rates[0])) > 1


def test_bench_names_an_option_that_an_optimizer_rejects(run: Run) -> None:
    code, _, error = run("bench", "optimizer=adamw", "+optimizer.foreach=true")
    assert code == 2 and "foreach" in error


def test_an_encoding_that_fails_beyond_the_training_length_is_an_error_of_inspect(
    run: Run,
) -> None:
    code, _, error = run("inspect", "encoding=table", "train_length=100", "model.width=32")
    assert code == 2 and "IndexError" in error and "max_length()" in error
    code, _, error = run("inspect", "encoding=wrongshape", "model.width=32")
    assert code == 2 and "own_encoding.py" in error and "WrongShape" in error
    assert not Path("outputs").exists()


@pytest.mark.slow
def test_an_encoding_that_supports_no_coordinates_is_inspected(run: Run) -> None:
    code, printed, _ = run(
        "inspect", "encoding=limitedtable", "train_length=32", "model.width=32", "model.heads=4"
    )
    assert code == 0 and "limitedtable" in printed
