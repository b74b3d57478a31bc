"""Only what may be built is built, with only what it takes."""

import sys
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from posenc.config.components import build, check
from posenc.config.errors import ConfigError
from posenc.encodings.base import Geometry

GEOMETRY = Geometry(width=32, heads=4, layers=1, train_length=8)


def node(**knobs: object):
    return OmegaConf.create({"_target_": "posenc.encodings.t5.T5", **knobs})


def test_builds_with_facts_and_knobs() -> None:
    encoding = build(node(num_buckets=16), GEOMETRY, name="encoding")
    assert encoding.num_buckets == 16
    assert encoding.geometry is GEOMETRY


@pytest.mark.parametrize(
    ("knobs", "message"),
    [
        ({"bucket": 3}, r"unknown parameter encoding.bucket \(nearest: num_buckets\)"),
        ({"num_buckets": "many"}, "encoding.num_buckets='many' must be of type int"),
        ({"geometry": 3}, "unknown parameter encoding.geometry"),
        ({"num_buckets": 1}, "num_buckets=1"),
    ],
)
def test_a_wrong_knob_is_named(knobs: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build(node(**knobs), GEOMETRY, name="encoding")


def test_a_target_of_others_is_refused_before_it_is_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "stranger.py").write_text("raise SystemExit('imported')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    for target in ("stranger.Thing", "os.system", "posencx.Thing"):
        with pytest.raises(ConfigError, match="outside posenc"):
            check(OmegaConf.create({"_target_": target}), name="encoding")
    assert "stranger" not in sys.modules


def test_a_named_module_may_be_built_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_own.py").write_text(
        "from posenc.encodings.base import Encoding\n"
        "class Mine(Encoding):\n"
        "    def __init__(self, geometry, *, rate: float):\n"
        "        super().__init__(geometry)\n"
        "        self.rate = rate\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    mine = OmegaConf.create({"_target_": "my_own.Mine", "rate": 2})
    assert build(mine, GEOMETRY, name="encoding", modules=["my_own"]).rate == 2
    with pytest.raises(ConfigError, match="rate missing"):
        build(
            OmegaConf.create({"_target_": "my_own.Mine"}),
            GEOMETRY,
            name="encoding",
            modules=["my_own"],
        )
