"""Instantiation of configuration nodes: trusted targets and valid arguments only."""

import sys
from pathlib import Path

import pytest
from omegaconf import DictConfig, OmegaConf

from posenc.config.components import build, check
from posenc.config.errors import ConfigError
from posenc.encodings.base import Geometry

GEOMETRY = Geometry(width=32, heads=4, layers=1, train_length=8)


def t5_node(**parameters: object) -> DictConfig:
    return OmegaConf.create({"_target_": "posenc.encodings.t5.T5", **parameters})


def test_build_passes_positional_and_configured_arguments() -> None:
    encoding = build(t5_node(num_buckets=16), GEOMETRY, name="encoding")
    assert encoding.num_buckets == 16
    assert encoding.geometry is GEOMETRY


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"bucket": 3}, r"unknown parameter encoding.bucket \(did you mean num_buckets\?\)"),
        ({"num_buckets": "many"}, "encoding.num_buckets='many' must be of type int"),
        ({"geometry": 3}, "unknown parameter encoding.geometry"),
        ({"num_buckets": 1}, "num_buckets=1"),
    ],
)
def test_an_invalid_parameter_is_named(parameters: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build(t5_node(**parameters), GEOMETRY, name="encoding")


def test_a_whole_number_for_a_float_parameter_becomes_a_float() -> None:
    """Configurations contain 10000 for 10000.0, so that both have the same hash."""
    spectrum = {"_target_": "posenc.encodings.spectra.geometric", "_partial_": True, "base": 10000}
    node = OmegaConf.create({"_target_": "posenc.encodings.rope.Rope", "spectrum": spectrum})
    encoding = build(node, GEOMETRY, name="encoding")
    assert isinstance(encoding.sinusoids.spectrum.keywords["base"], float)
    assert isinstance(node.spectrum.base, int)
    assert type(build(t5_node(num_buckets=16), GEOMETRY, name="encoding").num_buckets) is int


def test_whole_numbers_in_annotated_lists_and_mappings_become_floats(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that `torch.full` and `torch.tensor` do not make tensors of integers of them."""
    (tmp_path / "own_rates.py").write_text(
        "from typing import List\nfrom posenc.encodings.base import Encoding\n"
        "class Rates(Encoding):\n"
        "    def __init__(self, geometry, *, rates: list[float], pair: tuple[float, int],\n"
        "                 table: dict[str, list[float]] | None, either: float | int, plain=1,\n"
        "                 bare: List = (), pairs: tuple[float, float] | None = None):\n"
        "        super().__init__(geometry)\n"
        "        self.values = [rates, list(pair), table, either, plain, bare, list(pairs)]\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    values = {"rates": [1, 2.5], "pair": [3, 4], "table": {"a": [5]}, "either": 6}
    values |= {"bare": [7], "pairs": [8, 9]}
    node = OmegaConf.create({"_target_": "own_rates.Rates", **values})
    encoding = build(node, GEOMETRY, name="encoding", modules=["own_rates"])
    assert repr(encoding.values) == "[[1.0, 2.5], [3.0, 4], {'a': [5.0]}, 6, 1, [7], [8.0, 9.0]]"


def test_an_untrusted_target_is_rejected_without_importing_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "untrusted.py").write_text("raise SystemExit('imported')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    for target in ("untrusted.Thing", "os.system", "posencx.Thing"):
        with pytest.raises(ConfigError, match="outside posenc"):
            check(OmegaConf.create({"_target_": target}), name="encoding")
    assert "untrusted" not in sys.modules


def test_whatever_an_import_raises_is_an_error_of_the_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "raises.py").write_text("class Odd(BaseException): pass\nraise Odd('x')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ConfigError, match=r"cannot be imported: Odd: x .*raises.py, line 2"):
        check(OmegaConf.create({"_target_": "raises.A"}), name="encoding", modules=["raises"])


def test_a_class_of_a_trusted_module_can_be_a_target(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "user_module.py").write_text(
        "from posenc.encodings.base import Encoding\n"
        "class Mine(Encoding):\n"
        "    def __init__(self, geometry, *, rate: float):\n"
        "        super().__init__(geometry)\n"
        "        self.rate = rate\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    node = OmegaConf.create({"_target_": "user_module.Mine", "rate": 2})
    assert build(node, GEOMETRY, name="encoding", modules=["user_module"]).rate == 2
    with pytest.raises(ConfigError, match="encoding has no rate"):
        del node.rate
        build(node, GEOMETRY, name="encoding", modules=["user_module"])
