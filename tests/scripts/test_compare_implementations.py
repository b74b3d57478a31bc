"""scripts/benchmarks/compare_implementations.py on very small models."""

import importlib
import importlib.util
import math
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

SCRIPTS = Path(__file__).parents[2] / "scripts" / "benchmarks"
NAMES = [
    "posenc nope",
    "posenc learned",
    "posenc rope",
    "posenc rope SwiGLU",
    "nanoGPT",
    "transformers GPT-2",
    "x-transformers",
    "x-transformers rotary",
    "litgpt",
    "transformers Llama",
]
INSTALLED = [name for name in NAMES if name != "litgpt" or importlib.util.find_spec("litgpt")]
"""litgpt is not a test dependency; the other libraries are."""
SAME_MATRICES = ["transformers GPT-2", "x-transformers rotary", "litgpt"]
"""Implementations with the same matrix products as their counterpart in posenc."""
LENGTH = 16
CPU = torch.device("cpu")
pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning")


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(SCRIPTS)
    return importlib.import_module("compare_implementations")


@pytest.fixture
def size(script: ModuleType) -> Any:
    return script.Size(width=64, layers=2, heads=2, feed_forward=256, vocab_size=50, tokens=64)


def test_every_implementation_is_tested(script: ModuleType) -> None:
    assert list(script.IMPLEMENTATIONS) == NAMES


@pytest.mark.parametrize("name", INSTALLED)
def test_every_parameter_has_a_gradient_and_the_loss_falls(
    script: ModuleType, size: Any, name: str
) -> None:
    implementation = script.IMPLEMENTATIONS[name]
    steps = script.Steps(implementation, size, LENGTH, "float32", CPU)
    steps.loss(steps.tokens, steps.targets).backward()
    for parameter, weight in steps.model.named_parameters():
        assert weight.grad is not None and weight.grad.any(), parameter
    for _ in range(4):
        steps.run()
    script.check_learning({name: steps}, size.vocab_size)


@pytest.mark.parametrize("name", [name for name in SAME_MATRICES if name in INSTALLED])
def test_an_implementation_has_the_flops_of_its_counterpart(
    script: ModuleType, size: Any, name: str
) -> None:
    implementation = script.IMPLEMENTATIONS[name]
    counterpart = script.IMPLEMENTATIONS[implementation.counterpart]
    flops, expected = (
        script.step_flops(i.build(size, LENGTH)[0], i, size, LENGTH)
        for i in (implementation, counterpart)
    )
    assert flops == expected


def test_flops_are_those_of_the_matrix_products(script: ModuleType, size: Any) -> None:
    for name in ("posenc learned", "nanoGPT"):
        implementation = script.IMPLEMENTATIONS[name]
        model, _ = implementation.build(size, LENGTH)
        block = 4 * 64 * 64 + 2 * 64 * 256  # q, k, v, out; up, out
        attention = 2 * 64 * LENGTH / 2  # scores and weighted sums over half of all pairs
        expected = 6 * 64 * (2 * (block + attention) + 50 * 64)
        assert script.step_flops(model, implementation, size, LENGTH) == expected, name


def test_an_implementation_that_does_not_learn_is_an_error(script: ModuleType, size: Any) -> None:
    steps = script.Steps(script.IMPLEMENTATIONS["nanoGPT"], size, LENGTH, "float32", CPU)
    start = math.log(size.vocab_size)
    for losses in ([start, start + 0.1], [start + 2, start], [math.nan, start], [start, math.nan]):
        steps.losses = losses
        with pytest.raises(SystemExit, match="nanoGPT"):
            script.check_learning({"nanoGPT": steps}, size.vocab_size)


def test_a_missing_library_is_skipped_with_a_hint_to_install_it(
    script: ModuleType,
    size: Any,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def build(*_: object) -> None:
        raise ModuleNotFoundError("no", name="litgpt")

    missing = script.Implementation(build, "litgpt", "posenc rope")
    monkeypatch.setitem(script.IMPLEMENTATIONS, "litgpt", missing)
    assert script.build_installed(["litgpt"], size, LENGTH, "float32", CPU) == {}
    assert "pip install litgpt" in capsys.readouterr().out


def test_nanogpt_equals_posenc_with_learned_positions(script: ModuleType, size: Any) -> None:
    model, _ = script.IMPLEMENTATIONS["posenc learned"].build(size, LENGTH)
    nanogpt, _ = script.IMPLEMENTATIONS["nanoGPT"].build(size, LENGTH)
    names = {
        "encoding.table": "positions.weight",
        "attention_norm": "norms.0",
        "feed_forward_norm": "norms.1",
        "feed_forward.": "",
    }
    state = {}
    for name, value in model.state_dict().items():
        for old, new in names.items():
            name = name.replace(old, new)
        state[name] = value
    nanogpt.load_state_dict(state)
    tokens = torch.randint(0, size.vocab_size, (2, LENGTH))
    torch.testing.assert_close(model.double()(tokens), nanogpt.double()(tokens), rtol=0, atol=1e-12)
