"""Inkling's bias and temperature, compared with loops over tokens and with transformers."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers.models.inkling.modeling_inkling import InklingRelativeLogits

from posenc.attention.choice import kernel_function
from posenc.encodings.base import Geometry
from posenc.encodings.inkling import Inkling

LOCAL, GLOBAL, LAST, LENGTH = 0, 2, 4, 37
GEOMETRY = Geometry(width=12, heads=3, layers=5, train_length=17)


def build(**parameters: Any) -> Inkling:
    torch.manual_seed(2)
    encoding = Inkling(GEOMETRY, **{"d_rel": 5, "extent": 13, "size": 7, "every": 3, **parameters})
    for parameter in encoding.parameters():
        parameter.data = torch.randn(parameter.shape, dtype=torch.float64)
    return encoding


def random_inputs(dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(4)
    q, k, v = torch.randn(3, 2, 3, LENGTH, 4, generator=generator, dtype=dtype).unbind(0)
    return torch.randn(2, LENGTH, 12, generator=generator, dtype=dtype), q, k, v


@pytest.mark.parametrize("layer", [LOCAL, GLOBAL, LAST])
@pytest.mark.parametrize("kernel", ["reference", "auto"])
@pytest.mark.parametrize("parameters", [{"alpha": 0.3}, {"n_floor": 5}, {"alpha": 0.0}])
def test_attention_equals_a_loop_over_tokens(
    layer: int, kernel: str, parameters: dict[str, Any]
) -> None:
    encoding, (x, q, k, v) = build(**parameters), random_inputs()
    pos = torch.arange(LENGTH)
    layer_encoding = encoding.at_layer(layer)
    out = kernel_function(kernel)(layer_encoding, x, *layer_encoding.rotate(x, q, k, pos), v, pos)
    assert layer_encoding.window() == (7 if layer == LOCAL else None)
    extent, first_key = (7, lambda i: max(0, i - 6)) if layer == LOCAL else (13, lambda i: 0)
    n0, alpha = parameters.get("n_floor", 17), parameters.get("alpha", 0.1)
    for h in range(3):
        for i in range(LENGTH):
            tau = 1 + alpha * math.log(max(1, (i + 1) / n0)) if layer != LOCAL else 1.0
            mixture = encoding.weight[layer, h] @ x[1, i]
            keys = range(first_key(i), i + 1)
            scores = []
            for j in keys:
                score = (q[1, h, i] @ k[1, h, j]).item() / 2
                if i - j < extent:
                    score += (mixture @ encoding.curves[layer][:, i - j]).item()
                scores.append(tau * score)
            weights = torch.tensor(scores, dtype=torch.float64).softmax(0)
            expected = weights @ v[1, h, keys[0] :][: len(keys)]
            torch.testing.assert_close(out[1, h, i], expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("rows", [LENGTH, 9])
def test_the_bias_equals_that_of_transformers(rows: int) -> None:
    encoding, (x, q, k, _) = build(alpha=0.0).float(), random_inputs(torch.float32)
    theirs = InklingRelativeLogits(d_rel=5, rel_extent=13)
    theirs.proj.data = encoding.curves[GLOBAL].data
    pos = torch.arange(LENGTH)
    states = torch.einsum("btw,hrw->bthr", x[:, -rows:], encoding.weight[GLOBAL])
    expected = theirs(states, pos[-rows:], pos)
    distance = (pos[-rows:, None] - pos).float()
    actual = encoding.at_layer(GLOBAL).content_bias(
        x, q[:, :, -rows:], k, distance, pos[-rows:, None]
    )
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-5)


def test_temperatures_match_golden_values() -> None:
    encoding = Inkling(GEOMETRY, n_floor=512).at_layer(LAST)
    tau = encoding.temperature(torch.tensor([511, 1023, 8191])).tolist()
    assert tau == pytest.approx([1, 1.0693147181, 1.2772588722], rel=1e-9)


@pytest.mark.parametrize(
    ("every", "expected"), [(6, [4]), (2, [1, 3, 4]), (1, [0, 1, 2, 3, 4]), (5, [4])]
)
def test_every_nth_layer_and_the_last_are_global(every: int, expected: list[int]) -> None:
    encoding = Inkling(GEOMETRY, every=every, extent=9, size=4)
    layers = [encoding.at_layer(index) for index in range(5)]
    assert [index for index, layer in enumerate(layers) if layer.window() is None] == expected
    widths = [curves.shape[1] for curves in encoding.curves]
    assert widths == [9 if index in expected else 4 for index in range(5)]


def test_initial_parameters_have_the_published_scale() -> None:
    encoding = Inkling(Geometry(width=64, heads=8, layers=2, train_length=9))
    for parameter in encoding.parameters():
        assert parameter.std().item() == pytest.approx(0.02, rel=0.1)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [({"extent": 0}, "extent=0"), ({"n_floor": 0}, "n_floor=0"), ({"alpha": -1.0}, "alpha=-1.0")],
)
def test_invalid_parameters_are_rejected(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Inkling(GEOMETRY, **parameters)


def test_coordinates_are_rejected() -> None:
    x, q, k, _ = random_inputs()
    with pytest.raises(ValueError, match="inkling takes one position per token"):
        build().rotate(x, q, k, torch.zeros(2, LENGTH, 2))
