"""The attention temperatures, compared with their formulas token by token."""

import math
from functools import partial
from typing import Any, get_args

import pytest
import torch

from posenc.attention.choice import kernel_function
from posenc.encodings.alibi import Alibi
from posenc.encodings.base import Geometry
from posenc.encodings.nope import NoPE
from posenc.encodings.rope import Rope
from posenc.encodings.spectra import geometric
from posenc.encodings.temperature import Rule, Temperature
from posenc.encodings.window import Window
from posenc.encodings.wrapper import EncodingFactory

LAYER, TRAIN_LENGTH = 1, 13


def geometry(train_length: int = TRAIN_LENGTH) -> Geometry:
    return Geometry(width=12, heads=3, layers=2, train_length=train_length)


def factor(rule: str, n: int, s: float, n0: int) -> float:
    if rule == "log_n":
        return max(1.0, math.log(n) / math.log(n0))
    if rule == "ssmax":
        return s * math.log(n)
    if rule == "llama4":
        return 1 + s * math.log(1 + n // n0)
    if rule == "inkling":
        return 1 + s * math.log(n / n0) if n > n0 else 1.0
    return s


def scaled_ones(encoding: Temperature, length: int) -> torch.Tensor:
    """Return queries [H, T, d] of ones after `rotate` in layer LAYER."""
    q = torch.ones(1, 3, length, 4, dtype=torch.float64)
    x, pos = torch.zeros(1, length, 12), torch.arange(length)
    scaled, k = encoding.at_layer(LAYER).rotate(x, q, q, pos)
    assert torch.equal(k, q)
    return scaled[0]


@pytest.mark.parametrize("start", [None, 7])
@pytest.mark.parametrize("rule", get_args(Rule))
def test_queries_are_scaled_by_the_rules_formula(rule: Rule, start: int | None) -> None:
    scale = None if rule == "log_n" else 0.37
    start = start if rule in ("log_n", "llama4", "inkling") else None
    encoding = Temperature(geometry(), inner=NoPE, rule=rule, scale=scale, start=start)
    assert not list(encoding.parameters())
    scaled = scaled_ones(encoding, 41)
    for i in range(41):
        expected = factor(rule, i + 1, scale or 1.0, start or TRAIN_LENGTH)
        assert scaled[:, i].flatten().tolist() == pytest.approx([expected] * 12, rel=1e-12)


@pytest.mark.parametrize(
    ("rule", "initial"), [("ssmax", 0.43), ("llama4", 0.1), ("inkling", 0.1), ("head_scale", 1.0)]
)
def test_learnable_scales_differ_by_layer_and_head(rule: Rule, initial: float) -> None:
    encoding = Temperature(geometry(), inner=NoPE, rule=rule, trainable=True)
    (scales,) = encoding.parameters()
    assert scales.tolist() == [[pytest.approx(initial)] * 3] * 2
    scales.data = torch.tensor([[9.0, 9.0, 9.0], [0.5, 1.25, -0.75]])
    scaled = scaled_ones(encoding, 29)
    for h, s in enumerate([0.5, 1.25, -0.75]):
        expected = [factor(rule, i + 1, s, TRAIN_LENGTH) for i in range(29)]
        assert scaled[h, :, 0].tolist() == pytest.approx(expected, rel=1e-12)
    scaled.sum().backward()
    assert scales.grad is not None
    assert scales.grad[0].abs().max() == 0 and scales.grad[LAYER].abs().min() > 0


@pytest.mark.parametrize(
    ("rule", "start", "expected"),
    [
        (
            "log_n",
            512,
            {1: 1, 512: 1, 513: 1.00031278, 1024: 1.111111111, 2048: 11 / 9, 4096: 4 / 3},
        ),
        ("inkling", 512, {512: 1, 1024: 1.0693147181, 8192: 1.2772588722}),
        (
            "llama4",
            8192,
            {8191: 1, 8192: 1.0693147181, 16384: 1.1098612289, 65536: 1.2197224577},
        ),
    ],
)
def test_factors_match_golden_values(rule: Rule, start: int, expected: dict[int, float]) -> None:
    for encoding in (
        Temperature(geometry(start), inner=NoPE, rule=rule),
        Temperature(geometry(), inner=NoPE, rule=rule, start=start),
    ):
        actual = encoding.temperature(torch.tensor(list(expected), dtype=torch.float64))
        assert actual.tolist() == pytest.approx(list(expected.values()), rel=1e-8)


@pytest.mark.parametrize("inner", [partial(Rope, spectrum=geometric), Alibi])
@pytest.mark.parametrize("kernel", ["reference", "auto"])
def test_the_scores_of_the_inner_encoding_are_scaled_but_not_its_bias(
    inner: EncodingFactory, kernel: str
) -> None:
    generator = torch.Generator().manual_seed(3)
    q, k, v = torch.randn(3, 1, 3, 23, 4, generator=generator, dtype=torch.float64).unbind(0)
    x, pos = torch.zeros(1, 23, 12, dtype=torch.float64), torch.arange(23)
    encoding = Temperature(
        geometry(), inner=partial(Window, inner=inner, size=9), rule="ssmax", scale=0.7
    )
    layer = encoding.at_layer(LAYER)
    actual = kernel_function(kernel)(layer, x, *layer.rotate(x, q, k, pos), v, pos)
    plain_q, plain_k = inner(geometry()).rotate(x, q, k, pos)
    for h, slope in enumerate([2**-4, 2**-8, 2**-2]):
        for i in range(23):
            keys = range(max(0, i - 8), i + 1)
            tau = 0.7 * math.log(i + 1)
            scores = [tau * (plain_q[0, h, i] @ plain_k[0, h, j]).item() / 2 for j in keys]
            if inner is Alibi:
                scores = [score - slope * (i - j) for score, j in zip(scores, keys, strict=True)]
            weights = torch.tensor(scores, dtype=torch.float64).softmax(0)
            torch.testing.assert_close(actual[0, h, i], weights @ v[0, h, keys[0] : i + 1])


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"rule": "ln_n"}, "rule=ln_n must be one of log_n, ssmax"),
        ({"rule": "log_n", "scale": 2.0}, "rule=log_n has no scale"),
        ({"rule": "log_n", "trainable": True}, "rule=log_n has no scale"),
        ({"rule": "log_n", "start": 1}, "start=1 .* at least 2"),
        ({"rule": "ssmax", "start": 9}, "start=9 has no effect with rule=ssmax"),
        ({"rule": "llama4", "start": 0}, "start=0 must be at least 1"),
        ({"rule": "inkling", "scale": -0.1}, "scale=-0.1 must be positive"),
        ({"rule": "head_scale"}, "rule=head_scale .* no effect"),
    ],
)
def test_invalid_parameters_and_those_without_an_effect_are_rejected(
    parameters: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        Temperature(geometry(), inner=NoPE, **parameters)


def test_log_n_needs_a_training_length_of_at_least_2() -> None:
    with pytest.raises(ValueError, match=r"start=1 .* train_length"):
        Temperature(geometry(train_length=1), inner=NoPE, rule="log_n")
