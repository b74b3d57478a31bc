"""Mistakes in a user's encoding are found while a sweep is planned, before anything is written."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from posenc.cli import main

MODULE = """
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
"""
LINE_OF = {
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
    ("ComputedTensor", 0, ["RuntimeError", "deepcopy"]),
    ("BrokenLayer", 2, ["AttributeError", "'layers'"]),
    ("BlindToItself", 1, ["mask returned bool", "every query's own key"]),
    ("NothingOverridden", 0, ["encoding=nope"]),
    ("InPlace", 1, ["rotate changes one of its arguments in place"]),
    ("PropertyHook", 0, ["window is a property", "must be a method"]),
    ("NoReturn", 1, ["bias returns None", "encoding=nope", "return statement"]),
    ("OtherDevice", 1, ["device meta", "device of its arguments"]),
    ("LaterNotCausal", 1, ["LaterNotCausal.rotate", "later", "limitations['causal']"]),
]
"""Class, line of the mistake relative to the class, and what the message contains."""
SMALL = ["model.width=16", "model.heads=2", "model.layers=2", "train_length=16", "logger=none"]


@pytest.fixture
def train(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., int]]:
    """Runs `posenc train` with a class of MODULE in a folder that has nothing else."""
    (tmp_path / "mistaken.py").write_text(MODULE)
    (tmp_path / "conf" / "encoding").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)

    def run(name: str, *words: str) -> int:
        (tmp_path / "conf" / "encoding" / "mine.yaml").write_text(f"_target_: mistaken.{name}\n")
        return main(["train", "--config-dir", "conf", "encoding=mine", *SMALL, *words])

    yield run
    sys.modules.pop("mistaken", None)


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
    assert f"mistaken.py, line {LINE_OF[name] + line}" in message
    for part in parts:
        assert part in message
    assert not Path("outputs").exists()


def test_a_sweep_reports_a_mistake_once(
    train: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert train("NotCausal", "seed=1,2", "optimizer.learning_rate=1e-2,1e-3") == 2
    assert capsys.readouterr().err.count("NotCausal.rotate") == 1


def test_a_constructor_without_the_geometry_is_named_although_its_parameter_is_configured(
    train: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert train("WithoutGeometry", "+encoding.rate=0.5") == 2
    message = capsys.readouterr().err
    assert "mistaken.py" in message and "the geometry first" in message


def test_an_import_that_fails_is_named_with_its_line(
    train: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mistaken.py").write_text("import math\nimport package_that_is_missing\n")
    assert train("WrongShape") == 2
    assert "(mistaken.py, line 2)" in capsys.readouterr().err
