"""Stick-breaking attention, compared with golden values and with products over keys."""

import math
from functools import partial

import pytest
import torch
from torch import Tensor

from posenc.attention import reference
from posenc.attention.choice import kernel_function
from posenc.encodings.base import Encoding, Geometry
from posenc.encodings.stick_breaking import StickBreaking
from posenc.encodings.window import Window

GEOMETRY = Geometry(width=24, heads=3, layers=1, train_length=16)


def last_row(scores: list[float], attend_current: bool = False) -> Tensor:
    """Return the weights of the last query, whose own key comes last."""
    encoding = StickBreaking(GEOMETRY, attend_current=attend_current)
    return encoding.normalize(torch.tensor(scores, dtype=torch.float64).view(1, 1, 1, -1)).flatten()


@pytest.mark.parametrize(
    ("scores", "weights"),
    [
        ([0, 0, 0, 0], [0.0625, 0.125, 0.25, 0.5, 0.0625]),
        (
            [1, -1, 2, 0.5],
            [0.02405221059, 0.01210342652, 0.3325367179, 0.6224593312, 0.008848313791],
        ),
        ([], [1]),
    ],
)
def test_the_weights_match_golden_values(scores: list[float], weights: list[float]) -> None:
    """The query's own key, whose score does not matter, receives the remainder."""
    assert last_row([*scores, 7.5]).tolist() == pytest.approx(weights, rel=1e-8)


def test_the_current_key_takes_its_piece_and_receives_the_remainder() -> None:
    weights = last_row([0, 0, 0], attend_current=True).tolist()
    assert weights == pytest.approx([0.125, 0.25, 0.5 + 0.125], rel=1e-12)


@pytest.mark.parametrize("kernel", ["reference", "auto"])
@pytest.mark.parametrize("attend_current", [False, True])
@pytest.mark.parametrize("window", [None, 5])
def test_attention_is_a_product_over_the_later_keys(
    kernel: str, attend_current: bool, window: int | None
) -> None:
    length = 17
    generator = torch.Generator().manual_seed(2)
    q, k, v = torch.randn(3, 1, 3, length, 8, generator=generator, dtype=torch.float64).unbind(0)
    inner = partial(StickBreaking, attend_current=attend_current)
    encoding: Encoding = inner(GEOMETRY)
    if window is not None:
        encoding = Window(GEOMETRY, inner=inner, size=window)
    x, pos = torch.zeros(1, length, 24, dtype=torch.float64), torch.arange(length)
    actual = kernel_function(kernel)(encoding, x, q, k, v, pos)
    for h in range(3):
        for i in range(length):
            stick, out = 1.0, torch.zeros(8, dtype=torch.float64)
            first_key = 0 if window is None else max(0, i - window + 1)
            for j in range(i if attend_current else i - 1, first_key - 1, -1):
                z = (q[0, h, i] @ k[0, h, j]).item() / math.sqrt(8)
                piece = stick / (1 + math.exp(-z))
                stick -= piece
                out += piece * v[0, h, j]
            out += stick * v[0, h, i]
            torch.testing.assert_close(actual[0, h, i], out, rtol=0, atol=1e-12)


def test_large_scores_have_finite_weights_and_gradients() -> None:
    q = torch.tensor([1e3, -1e3, 1e2, -1e2, 0.0]).view(1, 1, 5, 1).requires_grad_()
    ones, x = torch.ones(1, 1, 5, 1), torch.zeros(1, 5, 1)
    encoding = StickBreaking(Geometry(width=1, heads=1, layers=1, train_length=5))
    out = reference.attend(encoding, x, q, ones, ones, torch.arange(5))
    (grad,) = torch.autograd.grad(out.sum(), q)
    torch.testing.assert_close(out, ones)
    assert grad.isfinite().all()
