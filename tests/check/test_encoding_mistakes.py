"""Mistakes in a user's encoding are found while a sweep is planned, before anything is written."""

import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path

import pytest

from posenc.check.hook_definitions import verify_definitions
from posenc.cli import main
from posenc.encodings.base import Encoding, Geometry

MODULE = """
import random
import numpy as np
import torch
from posenc.encodings.base import Encoding


class WrongShape(Encoding):
    def bias(self, head, distance, pos_q):
        return -0.5 * distance.sum(dim=-1)


class WrongSignature(Encoding):
    def bias(self, distance):
        return -0.5 * distance


class NotFinite(Encoding):
    def bias(self, head, distance, pos_q):
        return -distance.sqrt()


class NotCausal(Encoding):
    def rotate(self, x, q, k, pos):
        return q, k + k.flip(2)


class FractionalLookback(Encoding):
    def content_lookback(self):
        return 0.5

    def bias(self, head, distance, pos_q):
        return -0.5 * distance


class ListOfLimitations(Encoding):
    limitations = ["any_length"]

    def bias(self, head, distance, pos_q):
        return -0.5 * distance


class Exits(Encoding):
    def bias(self, head, distance, pos_q):
        raise SystemExit(0)


class SetsDefaultDtype(Encoding):
    def bias(self, head, distance, pos_q):
        torch.set_default_dtype(torch.float64)
        return -0.5 * distance


class Seeds(Encoding):
    def bias(self, head, distance, pos_q):
        torch.manual_seed(0)
        return -0.5 * distance


class DependsOnBatch(Encoding):
    def content_bias(self, x, q, k, distance, pos_q):
        return 0 * (q @ k.mT) - q[:1].square().mean(-1, keepdim=True) * distance


class Misspelled(Encoding):
    def biass(self, head, distance, pos_q):
        return -0.5 * distance


class WithoutGeometry(Encoding):
    def __init__(self, *, rate: float = 0.5):
        super().__init__()

    def bias(self, head, distance, pos_q):
        return -0.5 * distance


class NoEncoding:
    def __init__(self, geometry):
        self.geometry = geometry


class SuperWithoutGeometry(Encoding):
    def __init__(self, geometry):
        super().__init__()


class Raising(Encoding):
    def embed(self, x, pos):
        return x + self.table[pos]


class HiddenHook(Encoding):
    def __init__(self, geometry):
        super().__init__(geometry)
        self.window = 5


class OneOutput(Encoding):
    def rotate(self, x, q, k, pos):
        return q


class DependsOnLength(Encoding):
    def rotate(self, x, q, k, pos):
        return q * len(pos), k


class ComputedTensor(Encoding):
    def __init__(self, geometry):
        super().__init__(geometry)
        self.rate = torch.nn.Parameter(torch.ones(1))
        self.slope = self.rate.exp()

    def bias(self, head, distance, pos_q):
        return -self.slope * distance


class BrokenLayer(Encoding):
    def at_layer(self, layer):
        return self.layers[layer]

    def bias(self, head, distance, pos_q):
        return -distance


class BlindToItself(Encoding):
    def mask(self, query, key):
        return key < query


class NothingOverridden(Encoding):
    def slopes(self):
        return torch.zeros(1)


class InPlace(Encoding):
    def rotate(self, x, q, k, pos):
        q *= 2
        return q, k


class PropertyHook(Encoding):
    @property
    def window(self):
        return 5


class NoReturn(Encoding):
    def bias(self, head, distance, pos_q):
        -0.5 * distance


class OtherDevice(Encoding):
    def bias(self, head, distance, pos_q):
        return torch.zeros(2, 3, 7, device="meta")


class LaterNotCausal(Encoding):
    def rotate(self, x, q, k, pos):
        return q, torch.cat([k[:, :, :40], k[:, :, 40:].flip(2)], 2)


class WithoutSuper(Encoding):
    def __init__(self, geometry):
        self.rate = 0.5

    def bias(self, head, distance, pos_q):
        return -self.rate * distance


class InitializedAsModule(Encoding):
    def __init__(self, geometry):
        torch.nn.Module.__init__(self)


class UnmaskedWeights(Encoding):
    def normalize(self, scores):
        return scores.nan_to_num(neginf=0.0).softmax(-1)


class TableOfL(Encoding):
    def embed(self, x, pos):
        return x + torch.zeros(self.geometry.train_length, 1)[pos]


class LaterNotFinite(Encoding):
    def bias(self, head, distance, pos_q):
        return (20 - distance.clamp(min=0)).sqrt()


class ComputeBias(Encoding):
    def compute_bias(self, head, distance, pos_q):
        return -distance


class ComputeContentBias(Encoding):
    def bias(self, head, distance, pos_q):
        return -distance

    def compute_bias(self, x, q, k, distance, pos_q):
        return None


class Embedding(Encoding):
    def embedding(self, x, pos):
        return x + 1


class InfiniteGradient(Encoding):
    def __init__(self, geometry):
        super().__init__(geometry)
        self.rate = torch.nn.Parameter(torch.ones(geometry.heads))

    def bias(self, head, distance, pos_q):
        return -(self.rate[head] * distance.clamp(min=0)).sqrt()


class PythonListOfParameters(Encoding):
    def __init__(self, geometry):
        super().__init__(geometry)
        self.rates = [torch.nn.Parameter(torch.ones(())) for _ in range(geometry.heads)]

    def bias(self, head, distance, pos_q):
        return -torch.stack(self.rates).to(distance.dtype)[head] * distance


class LateParameter(Encoding):
    def bias(self, head, distance, pos_q):
        if not hasattr(self, "rate"):
            self.rate = torch.nn.Parameter(torch.ones(()))
        return -self.rate * distance


class UnsavedMean(Encoding):
    def __init__(self, geometry):
        super().__init__(geometry)
        self.register_buffer("mean", torch.zeros(()), persistent=False)

    def embed(self, x, pos):
        if self.training:
            self.mean = 0.9 * self.mean + 0.1 * x.detach().abs().mean()
        return x

    def bias(self, head, distance, pos_q):
        return -(1 + self.mean) * distance


class RandomInEvaluation(Encoding):
    def bias(self, head, distance, pos_q):
        return -distance * torch.rand(())


class RandomPositions(Encoding):
    def positions(self, length, device):
        return torch.arange(length, device=device) * torch.randint(1, 9, ())

    def bias(self, head, distance, pos_q):
        return -distance


class UnseededInTraining(Encoding):
    def __init__(self, geometry):
        super().__init__(geometry)
        self.generator = np.random.default_rng()

    def bias(self, head, distance, pos_q):
        return -distance * (1 + (self.generator.random() if self.training else 0.0))


class LongestSeen(Encoding):
    longest = 1

    def embed(self, x, pos):
        self.longest = max(self.longest, x.shape[1])
        return x / self.longest


class GlobalRandomNumbers(Encoding):
    def bias(self, head, distance, pos_q):
        if self.training:
            distance = distance * (1 + random.random() + np.random.rand() + torch.rand(()).item())
        return -distance


class DependsOnTheBatch(Encoding):
    def embed(self, x, pos):
        return x - x.mean(dim=0)


class DependsOnTheBlock(Encoding):
    def bias(self, head, distance, pos_q):
        return -distance * (1 + pos_q - pos_q.min())


class SavedState(Encoding):
    def __init__(self, geometry):
        super().__init__(geometry)
        self.register_buffer("mean", torch.zeros(()))
        self.fraction = 0.0
        self.rates = torch.nn.ParameterList([torch.ones(())])
        self.first_rate = [self.rates[0]]

    def set_training_progress(self, fraction):
        self.fraction = fraction

    def embed(self, x, pos):
        if self.training:
            self.mean = 0.9 * self.mean + 0.1 * x.detach().abs().mean()
            x = torch.nn.functional.dropout(x)
        return x

    def bias(self, head, distance, pos_q):
        return -(1 + self.mean + self.fraction) * self.first_rate[0] * distance


class Helpers(Encoding):
    def bias(self, head, distance, pos_q):
        return self.compute_bias(head, distance, pos_q)

    def compute_bias(self, head, distance, pos_q):
        return -0.5 * distance

    def sink_tokens(self, count, start):
        return range(start, start + count)
"""
CLASS_LINES = {
    line.split()[1].split("(")[0].rstrip(":"): number
    for number, line in enumerate(MODULE.splitlines(), start=1)
    if line.startswith("class")
}
MISTAKES: list[tuple[str, int, list[str]]] = [
    ("WrongShape", 1, ["bias returned float32 [3]", "[2, 3, 7]", "distance: Tensor"]),
    ("WrongSignature", 1, ["(self, distance)", "(self, head, distance, pos_q)"]),
    ("NotFinite", 1, ["bias returned", "NaN", "negative distances"]),
    ("NotCausal", 1, ["NotCausal.rotate", "later", "limitations['causal']"]),
    ("Misspelled", 1, ["Misspelled.biass", "rename it to bias"]),
    ("WithoutGeometry", 1, ["(self, *, rate: float = 0.5)", "geometry"]),
    ("NoEncoding", 0, ["NoEncoding(Encoding)", "posenc.encodings.base"]),
    ("SuperWithoutGeometry", 2, ["missing 1 required positional argument: 'geometry'"]),
    ("Raising", 1, ["embed raised AttributeError", "'table'"]),
    ("HiddenHook", 0, ["self.window", "rename"]),
    ("OneOutput", 1, ["rotate returned float32", "queries and keys"]),
    ("DependsOnLength", 1, ["rotate", "how many tokens", "limitations['prefix_consistent']"]),
    ("ComputedTensor", 0, ["self.slope", "not registered", "in the hooks"]),
    ("PythonListOfParameters", 0, ["self.rates", "not registered", "nn.ParameterList"]),
    ("LateParameter", 0, ["add rate", "create it in __init__"]),
    ("UnsavedMean", 10, ["UnsavedMean.bias", "not saved", "register_buffer"]),
    ("RandomInEvaluation", 1, ["bias depends on random numbers", "self.training"]),
    ("RandomPositions", 1, ["positions depends on random numbers"]),
    ("UnseededInTraining", 5, ["in training", "random numbers", "numpy"]),
    ("LongestSeen", 3, ["embed depends on the lengths of earlier inputs"]),
    ("DependsOnTheBatch", 1, ["embed returns different values", "other sequences"]),
    ("DependsOnTheBlock", 1, ["bias returns a different value for a query"]),
    ("BrokenLayer", 2, ["AttributeError", "'layers'"]),
    ("BlindToItself", 1, ["mask returned bool", "every query's own key"]),
    ("NothingOverridden", 0, ["encoding=nope"]),
    ("InPlace", 1, ["rotate changes one of its arguments in place"]),
    ("PropertyHook", 0, ["window is a property", "must be a method"]),
    ("NoReturn", 1, ["bias returns None", "encoding=nope", "return statement missing?). Sig"]),
    ("OtherDevice", 1, ["device meta", "device of its arguments"]),
    ("LaterNotCausal", 1, ["LaterNotCausal.rotate", "later", "limitations['causal']"]),
    ("WithoutSuper", 1, ["WithoutSuper.__init__", "super().__init__(geometry)"]),
    ("InitializedAsModule", 1, ["super().__init__(geometry)"]),
    ("UnmaskedWeights", 1, ["UnmaskedWeights.normalize", "later", "limitations['causal']"]),
    ("TableOfL", 1, ["TableOfL.embed raised IndexError", "64 tokens", "max_length()"]),
    ("LaterNotFinite", 1, ["LaterNotFinite.bias returned float32 [3, 64] with NaN"]),
    ("ComputeBias", 1, ["ComputeBias.compute_bias", "rename it to bias"]),
    ("ComputeContentBias", 4, ["rename it to content_bias"]),
    ("InfiniteGradient", 0, ["the gradient of rate is not finite", "sqrt"]),
    ("Embedding", 1, ["Embedding.embedding", "rename it to embed"]),
    ("FractionalLookback", 1, ["content_lookback returned float 0.5", "non-negative integer"]),
    ("ListOfLimitations", 0, ["limitations = ['any_length']", "must map limitations"]),
    ("Exits", 2, ["Exits.bias raised SystemExit"]),
    ("SetsDefaultDtype", 1, ["SetsDefaultDtype.bias changes torch's default dtype"]),
    ("Seeds", 0, ["Seeds: a hook seeds torch's random number generator"]),
    ("DependsOnBatch", 1, ["DependsOnBatch.content_bias", "other sequences are in its batch"]),
]
"""Class, line of the mistake relative to the class statement, and parts of the message."""
SMALL = ["model.width=16", "model.heads=2", "model.layers=2", "train_length=16", "logger=none"]


@pytest.fixture
def train(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., int]]:
    """Runs `posenc train` with a class of MODULE, in a folder with nothing else in it."""
    (tmp_path / "mistaken.py").write_text(MODULE)
    (tmp_path / "conf" / "encoding").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)

    def run(name: str, *overrides: str) -> int:
        (tmp_path / "conf" / "encoding" / "mine.yaml").write_text(f"_target_: mistaken.{name}\n")
        return main(["train", "--config-dir", "conf", "encoding=mine", *SMALL, *overrides])

    yield run
    sys.modules.pop("mistaken", None)


def test_a_benchmark_finds_the_mistakes_that_planning_finds(
    train: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    train("Misspelled")
    message = capsys.readouterr().err.removeprefix("posenc train: ")
    assert main(["bench", "--config-dir", "conf", "encoding=mine", *SMALL[:3]]) == 2
    assert capsys.readouterr().err.endswith(message)


@pytest.mark.parametrize(("name", "line", "parts"), MISTAKES, ids=[name for name, *_ in MISTAKES])
def test_a_mistake_is_reported_with_its_line_before_anything_is_written(
    train: Callable[..., int],
    name: str,
    line: int,
    parts: list[str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert train(name) == 2
    message = capsys.readouterr().err
    assert len(message.splitlines()) == 1
    assert f"mistaken.py, line {CLASS_LINES[name] + line}" in message
    for part in parts:
        assert part in message
    assert not Path("outputs").exists()


def test_state_that_is_saved_or_follows_training_is_not_a_mistake(
    train: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert train("SavedState", "data.train=missing.txt", "data=text") == 2
    assert "missing.txt" in capsys.readouterr().err


@pytest.mark.slow
def test_runs_whose_encoding_uses_the_global_random_numbers_of_python_and_numpy_are_equal(
    train: Callable[..., int], small_job: list[str]
) -> None:
    losses = []
    for name in ("first", "second"):
        assert train("GlobalRandomNumbers", *small_job, f"name={name}") == 0
        (log,) = Path("outputs", name).glob("*/metrics.jsonl")
        losses.append(log.read_text())
    assert losses[0] == losses[1]


@pytest.mark.usefixtures("train")
def test_a_helper_named_after_an_overridden_hook_is_not_a_mistake() -> None:
    helpers: type[Encoding] = import_module("mistaken").Helpers
    verify_definitions(helpers(Geometry(width=16, heads=2, layers=1, train_length=16)))


def test_a_sweep_reports_a_mistake_once(
    train: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert train("NotCausal", "seed=1,2", "optimizer.learning_rate=1e-2,1e-3") == 2
    assert capsys.readouterr().err.count("NotCausal.rotate") == 1


def test_a_constructor_without_geometry_is_named_even_if_its_parameter_is_configured(
    train: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert train("WithoutGeometry", "+encoding.rate=0.5") == 2
    message = capsys.readouterr().err
    assert "mistaken.py" in message and "the geometry first" in message


def test_a_failing_import_is_reported_with_its_line(
    train: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mistaken.py").write_text("import math\nimport package_that_is_missing\n")
    assert train("WrongShape") == 2
    assert "(mistaken.py, line 2)" in capsys.readouterr().err
