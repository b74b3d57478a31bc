"""scripts/benchmarks/peers.py on very small models."""

import importlib
import importlib.util
import math
from pathlib import Path
from types import ModuleType

import pytest
import torch

SCRIPTS = Path(__file__).parents[2] / "scripts" / "benchmarks"
NAMES = [
    "posenc nope",
    "posenc learned",
    "posenc rope",
    "posenc rope gated",
    "nanoGPT's design",
    "transformers GPT-2",
    "x-transformers",
    "x-transformers rotary",
    "litgpt",
    "transformers Llama",
]
HERE = [name for name in NAMES if name != "litgpt" or importlib.util.find_spec("litgpt")]
"""litgpt is no dependency of the tests; the others are."""
TWINS = ["transformers GPT-2", "x-transformers rotary", "litgpt"]
LENGTH = 16
pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning")


@pytest.fixture
def peers(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(SCRIPTS)
    return importlib.import_module("peers")


@pytest.fixture
def size(peers: ModuleType):  # type: ignore[no-untyped-def]
    return peers.Size(width=64, layers=2, heads=2, feed_forward=256, vocabulary=50, tokens=64)


def test_every_contestant_is_tested(peers: ModuleType) -> None:
    assert list(peers.CONTESTANTS) == NAMES


@pytest.mark.parametrize("name", HERE)
def test_a_contestant_learns_with_every_parameter(peers: ModuleType, size, name: str) -> None:  # type: ignore[no-untyped-def]
    contestant = peers.CONTESTANTS[name]
    steps = peers.TrainingSteps(contestant, size, LENGTH, "float32", torch.device("cpu"))
    steps.loss(steps.tokens, steps.targets).backward()
    for parameter, value in steps.model.named_parameters():
        assert value.grad is not None and value.grad.any(), parameter
    for _ in range(4):
        steps.seconds()
    peers.refuse({name: steps}, size.vocabulary)


@pytest.mark.parametrize("name", [name for name in TWINS if name in HERE])
def test_a_peer_has_the_products_of_its_twin(peers: ModuleType, size, name: str) -> None:  # type: ignore[no-untyped-def]
    contestant = peers.CONTESTANTS[name]
    twin = peers.CONTESTANTS[contestant.twin]
    found = [peers.flops(c.build(size, LENGTH)[0], c, size, LENGTH) for c in (contestant, twin)]
    assert found[0] == found[1]


def test_the_floating_point_operations_are_those_of_the_products(peers: ModuleType, size) -> None:  # type: ignore[no-untyped-def]
    for name in ("posenc learned", "nanoGPT's design"):
        contestant = peers.CONTESTANTS[name]
        model, _ = contestant.build(size, LENGTH)
        block = 4 * 64 * 64 + 2 * 64 * 256  # q, k, v, out; up, out
        attention = 2 * 64 * LENGTH / 2  # scores and their sums over half of the pairs
        wanted = 6 * 64 * (2 * (block + attention) + 50 * 64)
        assert peers.flops(model, contestant, size, LENGTH) == wanted, name


def test_what_does_not_learn_is_refused(peers: ModuleType, size) -> None:  # type: ignore[no-untyped-def]
    steps = peers.TrainingSteps(
        peers.CONTESTANTS["nanoGPT's design"], size, LENGTH, "float32", torch.device("cpu")
    )
    start = math.log(size.vocabulary)
    for losses in ([start, start + 0.1], [start + 2, start], [math.nan, start], [start, math.nan]):
        steps.losses = losses
        with pytest.raises(SystemExit, match="no contestant"):
            peers.refuse({"one": steps}, size.vocabulary)


def test_what_is_not_installed_is_left_out_with_a_remedy(
    peers: ModuleType,
    size,  # type: ignore[no-untyped-def]
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def build(*_: object) -> None:
        raise ModuleNotFoundError("no", name="litgpt")

    lacking = peers.Contestant(build, "litgpt", "posenc rope")
    monkeypatch.setitem(peers.CONTESTANTS, "litgpt", lacking)
    assert peers.installed(["litgpt"], size, LENGTH, "float32", torch.device("cpu")) == {}
    assert "pip install litgpt" in capsys.readouterr().out


def test_nanogpts_design_is_posencs_model_with_learned_positions(peers: ModuleType, size) -> None:  # type: ignore[no-untyped-def]
    ours, _ = peers.CONTESTANTS["posenc learned"].build(size, LENGTH)
    theirs, _ = peers.CONTESTANTS["nanoGPT's design"].build(size, LENGTH)
    names = {
        "encoding.table": "positions.weight",
        "attention_norm": "norms.0",
        "feed_forward_norm": "norms.1",
        "feed_forward.": "",
    }
    state = {}
    for name, value in ours.state_dict().items():
        for old, new in names.items():
            name = name.replace(old, new)
        state[name] = value
    theirs.load_state_dict(state)
    tokens = torch.randint(0, size.vocabulary, (2, LENGTH))
    found, wanted = ours.double()(tokens), theirs.double()(tokens)
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-12)
