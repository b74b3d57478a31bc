"""Every kernel equals the reference, in outputs and gradients; the reference equals a loop."""

import math
import sys
from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor

from posenc.attention import KERNELS, blocks, kernel, reference, toeplitz
from posenc.config import settings
from posenc.encodings.alibi import Alibi
from posenc.encodings.base import Encoding, Geometry
from posenc.encodings.cable import Cable
from posenc.encodings.fire import Fire
from posenc.encodings.fox import Fox
from posenc.encodings.kerple import KerpleLog
from posenc.encodings.nope import NoPE
from posenc.encodings.sandwich import Sandwich
from posenc.encodings.t5 import T5

GEOMETRY = Geometry(width=32, heads=4, layers=1, train_length=16)


class Windowed(Alibi):
    def window(self) -> int:
        return 7


class SameInEveryHead(NoPE):
    def bias(self, head: Tensor, distance: Tensor, pos_q: Tensor) -> Tensor:
        return -distance.clamp(min=0).sqrt()


class Content(NoPE):
    """A gate per key, summed between key and query."""

    def content_bias(
        self, x: Tensor, q: Tensor, k: Tensor, distance: Tensor, pos_q: Tensor
    ) -> Tensor:
        gates = -x.mean(dim=-1).square().cumsum(dim=1)[:, None]
        rows = gates[:, :, -q.shape[2] :, None]
        return (rows - gates[:, :, None, :]).expand(-1, 4, -1, -1)


class Mixed(T5):
    """Adds the distance-weighted attention to every channel of the output."""

    def value_bias(self, weights: Tensor, distance: Tensor) -> Tensor:
        return (weights * distance.clamp(min=0).sin()).sum(-1, keepdim=True).expand(-1, -1, -1, 8)


class Widened(NoPE):
    """Comes back from `rotate` wider than the values."""

    def rotate(self, x: Tensor, q: Tensor, k: Tensor, pos: Tensor) -> tuple[Tensor, Tensor]:
        turn = pos.to(q.dtype)[:, None].cos()
        return torch.cat([q, q * turn], dim=-1), torch.cat([k, k * turn], dim=-1)


ENCODINGS = [NoPE, Alibi, T5, Windowed, SameInEveryHead, Content, Mixed, Widened]


def inputs(length: int, dtype: torch.dtype) -> list[Tensor]:
    generator = torch.Generator().manual_seed(length)
    q, k, v = (torch.randn(2, 4, length, 8, generator=generator).to(dtype) for _ in range(3))
    x = torch.randn(2, length, 32, generator=generator).to(dtype)
    return [tensor.requires_grad_() for tensor in (x, q, k, v)]


def run(name: str, encoding: Encoding, length: int, dtype: torch.dtype) -> list[Tensor]:
    """The kernel's output and the gradients of inputs and parameters."""
    x, q, k, v = inputs(length, dtype)
    pos = torch.arange(length)
    turned = encoding.rotate(x, q, k, pos)
    out = kernel(name)(encoding, x, *turned, v, pos)
    weights = torch.linspace(-1, 1, out.numel(), dtype=dtype).view_as(out)
    wanted = [q, k, v, *encoding.parameters()] + ([x] if isinstance(encoding, Content) else [])
    return [out, *torch.autograd.grad((out * weights).sum(), wanted)]


@pytest.mark.parametrize("make", ENCODINGS)
@pytest.mark.parametrize("length", [1, 17, 300])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 2e-5)])
def test_sdpa_equals_the_reference(
    make: type[Encoding], length: int, dtype: torch.dtype, tolerance: float
) -> None:
    torch.manual_seed(0)
    encoding = make(GEOMETRY).to(dtype)
    for wanted, got in zip(
        run("reference", encoding, length, dtype), run("sdpa", encoding, length, dtype), strict=True
    ):
        scale = max(1.0, wanted.abs().max().item())
        torch.testing.assert_close(got, wanted, rtol=0, atol=tolerance * scale)


@pytest.mark.parametrize("make", [Alibi, T5, Windowed])
def test_many_recomputed_blocks_change_nothing(
    make: type[Encoding], monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    encoding = make(GEOMETRY).double()
    whole = run("blocks", encoding, 100, torch.float64)
    monkeypatch.setattr(blocks, "ROWS", (16, 16))
    monkeypatch.setattr(blocks, "SAVED_BUDGET", 0)
    for wanted, got in zip(whole, run("blocks", encoding, 100, torch.float64), strict=True):
        torch.testing.assert_close(got, wanted, rtol=0, atol=1e-11)


def test_the_reference_is_the_definition() -> None:
    """A loop over batch, heads and rows, with a window and a bias, in Python floats."""
    encoding = Windowed(GEOMETRY)
    x, q, k, v = (tensor.detach() for tensor in inputs(11, torch.float64))
    out = reference.attend(encoding, x, q, k, v, torch.arange(11))
    for h in range(4):
        slope = 2.0 ** (-2 * (h + 1))
        for i in range(11):
            seen = range(max(0, i - 6), i + 1)
            scores = [
                sum(a * b for a, b in zip(q[0, h, i].tolist(), k[0, h, j].tolist(), strict=True))
                / math.sqrt(8)
                - slope * (i - j)
                for j in seen
            ]
            total = sum(math.exp(s) for s in scores)
            for c in range(8):
                wanted = sum(
                    math.exp(s) / total * v[0, h, j, c].item()
                    for s, j in zip(scores, seen, strict=True)
                )
                assert out[0, h, i, c].item() == pytest.approx(wanted, abs=1e-12)


def test_half_precision_stays_near_the_float64_reference() -> None:
    """Values, queries and keys in bfloat16; biases and softmax wider."""
    encoding = Alibi(GEOMETRY)
    exact = run("reference", encoding, 300, torch.float64)[0]
    got = run("sdpa", encoding, 300, torch.bfloat16)[0]
    assert got.dtype == torch.bfloat16
    assert (got.double() - exact).abs().max() < 0.05


def test_coordinates_of_the_data_make_distances() -> None:
    """Rows and columns of an image: ALiBi's penalty takes the Euclidean distance."""
    encoding = Alibi(GEOMETRY)
    x, q, k, v = (tensor.detach() for tensor in inputs(6, torch.float64))
    pos = torch.stack(
        [torch.arange(6).div(3, rounding_mode="floor"), torch.arange(6) % 3], dim=-1
    ).expand(2, 6, 2)
    out = reference.attend(encoding, x, q, k, v, pos)
    slope = 2.0**-2
    scores = torch.stack(
        [
            q[0, 0, 5] @ k[0, 0, j] / math.sqrt(8)
            - slope * math.dist(pos[0, 5].tolist(), pos[0, j].tolist())
            for j in range(6)
        ]
    )
    torch.testing.assert_close(out[0, 0, 5], scores.softmax(0) @ v[0, 0], rtol=0, atol=1e-12)


def test_an_unknown_kernel_is_refused_by_name() -> None:
    with pytest.raises(
        ValueError, match="kernel=flash is unknown; there are auto, reference, sdpa, causal"
    ):
        kernel("flash")


FULL_LINE = [Alibi, partial(Alibi, trainable=True), T5, KerpleLog, Sandwich, Windowed]


@pytest.mark.parametrize("make", FULL_LINE)
@pytest.mark.parametrize("length", [1, 7, 256, 300, 700])
def test_lines_equal_the_reference(make: Callable[[Geometry], Encoding], length: int) -> None:
    """Below, at and above the block sizes of both passes."""
    torch.manual_seed(0)
    encoding = make(GEOMETRY).double()
    assert toeplitz.applies(encoding, torch.zeros(1), torch.arange(length)) is None
    wanted = run("reference", encoding, length, torch.float64)
    for a, b in zip(wanted, run("lines", encoding, length, torch.float64), strict=True):
        torch.testing.assert_close(b, a, rtol=0, atol=1e-12 * max(1.0, a.abs().max().item()))


def test_a_line_is_read_as_the_mask_that_it_stands_for() -> None:
    """The fused kernel takes an overlapping view; whether it does so rightly is PyTorch's."""
    line = torch.randn(2, 30)
    seen = toeplitz.view(line, slice(5, 5 + 12 + 9 - 1), slice(0, 9))
    assert seen.shape == (2, 12, 9) and seen.data_ptr() == line[:, 5:].data_ptr()
    for u in range(12):
        assert torch.equal(seen[:, u], line[:, 5 + u : 14 + u])
    changes = torch.randn(2, 12, 9, dtype=torch.float64)
    wanted = torch.zeros(2, 20, dtype=torch.float64)
    for u in range(12):
        wanted[:, u : u + 9] += changes[:, u]
    torch.testing.assert_close(toeplitz.along_line(changes), wanted)


@pytest.mark.parametrize(
    ("name", "make", "why"),
    [
        ("causal", Alibi, "causal cannot serve Alibi: it has a bias"),
        ("causal", Windowed, "causal cannot serve Windowed: it has a"),
        ("lines", Fire, "lines cannot serve Fire: its bias is not one of distance alone"),
        ("lines", Content, "lines cannot serve Content: the encoding acts on what the tokens say"),
        ("factored", T5, "factored cannot serve T5: its bias has no factors"),
        ("factored", Windowed, "factored cannot serve Windowed: it has a window"),
    ],
)
def test_a_kernel_asked_for_by_name_refuses_what_it_cannot_serve(
    name: str, make: Callable[[Geometry], Encoding], why: str
) -> None:
    with pytest.raises(ValueError, match=f"kernel={why}"):
        run(name, make(GEOMETRY), 9, torch.float32)


class Undeclared(NoPE):
    """Looks at the query's position without saying so among its limitations."""

    def bias(self, head: Tensor, distance: Tensor, pos_q: Tensor) -> Tensor:
        return -distance / (1 + pos_q)


def test_a_bias_that_looks_at_the_query_is_noticed() -> None:
    for wanted, got in zip(
        run("reference", Undeclared(GEOMETRY), 30, torch.float64),
        run("sdpa", Undeclared(GEOMETRY), 30, torch.float64),
        strict=True,
    ):
        torch.testing.assert_close(got, wanted)
    with pytest.raises(ValueError, match="kernel=lines cannot serve Undeclared"):
        run("lines", Undeclared(GEOMETRY), 30, torch.float64)


def test_positions_that_skip_leave_the_lines() -> None:
    x, q, k, v = inputs(9, torch.float64)
    pos = torch.arange(9) * 2
    with pytest.raises(ValueError, match="positions do not follow one another"):
        toeplitz.attend(Alibi(GEOMETRY), x, q, k, v, pos)
    for name in ("sdpa", "blocks", "factored"):
        found = kernel(name)(Alibi(GEOMETRY), x, q, k, v, pos)
        torch.testing.assert_close(found, reference.attend(Alibi(GEOMETRY), x, q, k, v, pos))


@pytest.mark.parametrize(
    ("make", "used"),
    [
        (NoPE, "causal"),
        (Alibi, "lines"),
        (T5, "lines"),
        (Windowed, "lines"),
        (Fox, "factored"),
        (Cable, "factored"),
        (Fire, "blocks"),
        (Content, "blocks"),
        (Mixed, "blocks"),
    ],
)
def test_sdpa_takes_the_way_of_its_table(
    make: Callable[[Geometry], Encoding], used: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = []
    for name in ("causal", "lines", "factored", "blocks"):
        module = sys.modules[f"posenc.attention.{name}"]
        entry = {"factored": "with_columns", "lines": "with_line"}.get(name, "attend")
        plain = getattr(module, entry)

        def told(*given: object, name: str = name, plain: Callable[..., Tensor] = plain) -> Tensor:
            taken.append(name)
            return plain(*given)

        monkeypatch.setattr(module, entry, told)
    run("sdpa", make(GEOMETRY), 9, torch.float32)
    assert taken == [used]


def test_every_kernel_has_its_name_in_the_settings() -> None:
    assert set(KERNELS) | {"auto"} == set(settings.KERNELS)
