"""Encodings, compared in float64 with independent implementations of the papers' formulas."""

import cmath
import math
from collections.abc import Callable
from functools import partial
from typing import Literal

import pytest
import torch
from torch import Tensor

from posenc.encodings.alibi import Alibi, authors_slopes, formula_slopes
from posenc.encodings.base import Encoding, Factors, Geometry
from posenc.encodings.fire import Fire
from posenc.encodings.kerple import KerpleLog, KerplePower
from posenc.encodings.rope import Layout, Rope
from posenc.encodings.sandwich import Sandwich
from posenc.encodings.sinusoidal import Sinusoidal
from posenc.encodings.spectra import Spectrum, geometric
from posenc.encodings.t5 import T5

Product = Callable[[Factors], Tensor]
HEADS = [1, 2, 3, 6, 8, 12, 20]


def geometry(width: int = 64, heads: int = 4) -> Geometry:
    return Geometry(width=width, heads=heads, layers=1, train_length=32)


def geometric_with(base: float) -> Spectrum:
    return partial(geometric, base=base)


@pytest.mark.parametrize("base", [10.0, 1e4, 1e7])
@pytest.mark.parametrize("layout", ["interleaved", "concatenated"])
def test_sinusoidal_matches_the_papers_formula(
    base: float, layout: Literal["interleaved", "concatenated"]
) -> None:
    encoding = Sinusoidal(geometry(), spectrum=geometric_with(base), layout=layout)
    pos = torch.tensor([0, 1, 7, 511, 100_000])
    embedding = encoding.embed(torch.zeros(1, 5, 64, dtype=torch.float64), pos)[0]
    for row, m in enumerate(pos.tolist()):
        for i in range(32):
            angle = m / base ** (2 * i / 64)
            sin, cos = (2 * i, 2 * i + 1) if layout == "interleaved" else (i, 32 + i)
            assert embedding[row, sin].item() == pytest.approx(math.sin(angle), abs=1e-10)
            assert embedding[row, cos].item() == pytest.approx(math.cos(angle), abs=1e-10)


@pytest.mark.parametrize("width", [16, 64, 256])
@pytest.mark.parametrize("layout", ["interleaved", "half"])
def test_rope_rotates_complex_numbers(width: int, layout: Layout) -> None:
    """R(m) as multiplication by exp(i m f), with Python's complex numbers."""
    encoding = Rope(geometry(width, heads=1), spectrum=geometric_with(1e4), layout=layout)
    q, k = torch.randn(2, 1, 1, 3, width, dtype=torch.float64).unbind(0)
    pos = torch.tensor([0, 5, 99_999])
    rotated, _ = encoding.rotate(q, q, k, pos)
    for row, m in enumerate(pos.tolist()):
        for i in range(width // 2):
            a, b = (2 * i, 2 * i + 1) if layout == "interleaved" else (i, i + width // 2)
            pair = complex(q[0, 0, row, a], q[0, 0, row, b])
            expected = pair * cmath.exp(1j * m * 1e4 ** (-2 * i / width))
            assert rotated[0, 0, row, a].item() == pytest.approx(expected.real, abs=1e-9)
            assert rotated[0, 0, row, b].item() == pytest.approx(expected.imag, abs=1e-9)


@pytest.mark.parametrize(
    ("layout", "expected"),
    [
        ("interleaved", [-1.142639664, 1.922075597, 2.959850668, 4.029799502]),
        ("half", [-1.984110649, 1.959900667, 2.462377902, 4.019799668]),
    ],
)
def test_rope_matches_golden_values(layout: Layout, expected: list[float]) -> None:
    encoding = Rope(geometry(4, heads=1), spectrum=geometric_with(1e4), layout=layout)
    x = torch.tensor([1.0, 2.0, 3.0, 4.0], dtype=torch.float64).view(1, 1, 1, 4)
    rotated, _ = encoding.rotate(x, x, x, torch.tensor([1]))
    assert rotated.flatten().tolist() == pytest.approx(expected, rel=1e-8)


@pytest.mark.parametrize("heads", HEADS)
def test_alibi_slopes_are_two_geometric_series(heads: int) -> None:
    power = 1
    while power * 2 <= heads:
        power *= 2
    ratio = 2.0 ** (-8.0 / power)
    expected = [ratio**h for h in range(1, power + 1)]
    ratio_between = math.sqrt(ratio)
    expected += [ratio_between ** (2 * n + 1) for n in range(heads - power)]
    assert authors_slopes(heads) == pytest.approx(expected, rel=1e-12)


def test_alibi_slopes_match_golden_values() -> None:
    assert authors_slopes(6) == pytest.approx([0.25, 0.0625, 0.015625, 0.00390625, 0.5, 0.125])
    assert authors_slopes(12)[8:] == pytest.approx(
        [0.7071067812, 0.3535533906, 0.1767766953, 0.08838834765]
    )
    assert authors_slopes(20)[16:] == pytest.approx(
        [0.8408964153, 0.5946035575, 0.4204482076, 0.2973017788]
    )


@pytest.mark.parametrize("heads", [6, 8, 12, 20])
def test_alibi_bias_and_factors_match_the_slopes(heads: int, product: Product) -> None:
    encoding = Alibi(geometry(heads * 8, heads))
    pos = torch.arange(9)
    head = torch.arange(heads)[:, None, None]
    distance = (pos[:, None] - pos[None, :]).double()
    bias = encoding.bias(head, distance, pos[:, None])
    zeros = torch.zeros(1, heads, 9, 8)
    factors = encoding.bias_factors(torch.zeros(1, 9, heads * 8), zeros, zeros, pos)
    assert factors is not None
    multiplied = product(factors)[0]
    for h, slope in enumerate(authors_slopes(heads)):
        for i in range(9):
            for j in range(i + 1):
                assert bias[h, i, j].item() == pytest.approx(-slope * (i - j), abs=1e-12)
                assert multiplied[h, i, j].item() == pytest.approx(-slope * (i - j), abs=1e-12)


GOLDEN_BUCKETS = {
    0: 0, 1: 1, 15: 15, 16: 16, 17: 16, 18: 16, 19: 17, 31: 21, 32: 21, 64: 26, 66: 26, 67: 27,
    112: 30, 113: 31, 127: 31, 128: 31, 1000: 31,
}  # fmt: skip


def test_t5_buckets_match_golden_values() -> None:
    actual = T5(geometry()).bucket(torch.tensor(list(GOLDEN_BUCKETS), dtype=torch.float32))
    assert actual.tolist() == list(GOLDEN_BUCKETS.values())


@pytest.mark.parametrize(("num_buckets", "max_distance"), [(32, 128), (16, 64), (31, 1000)])
def test_t5_bias_is_a_row_of_the_table(num_buckets: int, max_distance: int) -> None:
    encoding = T5(geometry(), num_buckets=num_buckets, max_distance=max_distance)
    head = torch.arange(4)[:, None, None]
    distance = torch.arange(3000, dtype=torch.float64)[None, :]
    bias = encoding.bias(head, distance, torch.zeros(1, 1))
    exact = num_buckets // 2
    for n in [*range(exact + 5), 100, 999, 2999]:
        row = n
        if n >= exact:
            steps = math.log(n / exact) / math.log(max_distance / exact) * (num_buckets - exact)
            row = min(exact + int(steps), num_buckets - 1)
        expected = encoding.table.detach().double()[row]
        torch.testing.assert_close(bias[:, 0, n].detach(), expected, rtol=0, atol=0)


@pytest.mark.parametrize(
    ("r1", "r2", "expected"),
    [
        (1.0, 1.0, [-0.6931471806, -2.397895273, -4.615120517, -6.908754779]),
        (0.5, 0.01, [-0.004975165427, -0.0476550899, -0.3465735903, -1.198947636]),
    ],
)
def test_kerple_log_matches_golden_values(r1: float, r2: float, expected: list[float]) -> None:
    encoding = KerpleLog(geometry()).double()
    encoding.r1.data.fill_(r1)
    encoding.r2.data.fill_(r2)
    distance = torch.tensor([1.0, 10.0, 100.0, 1000.0], dtype=torch.float64)
    actual = encoding.bias(torch.tensor(2), distance, torch.zeros(1))
    assert actual.tolist() == pytest.approx(expected, rel=1e-8)


@pytest.mark.parametrize(
    ("r1", "r2", "expected"),
    [(1.0, 0.5, [0, -1, -3.16227766, -10]), (0.01, 2.0, [0, -0.01, -1, -100])],
)
def test_kerple_power_matches_golden_values(r1: float, r2: float, expected: list[float]) -> None:
    encoding = KerplePower(geometry()).double()
    encoding.r1.data.fill_(r1)
    encoding.r2.data.fill_(r2)
    distance = torch.tensor([0.0, 1.0, 10.0, 100.0], dtype=torch.float64)
    actual = encoding.bias(torch.tensor(0), distance, torch.zeros(1))
    assert actual.tolist() == pytest.approx(expected, rel=1e-8)


@pytest.mark.parametrize("make", [KerpleLog, KerplePower])
def test_kerple_parameters_are_clamped_and_have_finite_gradients(
    make: type[KerpleLog] | type[KerplePower],
) -> None:
    encoding = make(geometry(heads=64, width=64))
    assert encoding.r1.max() <= 2 and encoding.r2.min() >= 0
    encoding.r1.data[0], encoding.r2.data[1] = -1.0, -1.0
    distance = torch.tensor([[-3.0, 0.0, 5.0]])
    bias = encoding.bias(torch.arange(64)[:, None, None], distance, torch.zeros(1, 1))
    bias.sum().backward()
    assert encoding.r1[0].item() == encoding.r2[1].item() == pytest.approx(0.01)
    for parameter in encoding.parameters():
        assert parameter.grad is not None and parameter.grad.isfinite().all()


@pytest.mark.parametrize(
    ("width", "heads", "head", "distances", "expected"),
    [
        (
            64,
            8,
            0,
            [0, 1, 10, 100, 1000],
            [0, -0.623470649249, -9.10930014632, -13.9877000868, -22.6414081611],
        ),
        (64, 8, 7, [1, 10, 100], [-0.07793383116, -1.138662518, -1.748462511]),
        (128, 8, 0, [1, 10, 100], [-1.446618505, -19.34090607, -33.31891417]),
    ],
)
def test_sandwich_matches_golden_values(
    width: int, heads: int, head: int, distances: list[int], expected: list[float]
) -> None:
    encoding = Sandwich(geometry(64, heads), bias_width=width)
    actual = encoding.bias(
        torch.tensor(head), torch.tensor(distances, dtype=torch.float64), torch.zeros(1)
    )
    assert actual.tolist() == pytest.approx(expected, rel=1e-8, abs=1e-12)


def test_sandwich_factors_equal_the_bias_up_to_a_constant(product: Product) -> None:
    encoding, pos = Sandwich(geometry(64, 4), bias_width=16), torch.arange(40)
    zeros = torch.zeros(1, 4, 40, 16)
    factors = encoding.bias_factors(torch.zeros(1, 40, 64), zeros, zeros, pos)
    assert factors is not None
    head = torch.arange(4)[:, None, None]
    bias = encoding.bias(head, (pos[:, None] - pos[None, :]).double(), pos[:, None])
    torch.testing.assert_close(product(factors)[0], bias, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("i", "j", "expected"),
    [
        (1, 0, 0.02409814608),
        (100, 0, 0.6062818335),
        (511, 411, 0.6062818335),
        (511, 0, 0.9995149164),
        (1023, 1022, 0.02055144711),
        (1023, 0, 0.9999997844),
        (4095, 4094, 0.01583915732),
    ],
)
def test_the_inputs_of_fires_mlp_match_golden_values(i: int, j: int, expected: float) -> None:
    encoding = Fire(geometry(64, 4)).double()
    encoding.c.data.fill_(0.1)
    actual = encoding.bias(
        torch.arange(4)[:, None, None],
        torch.tensor([[float(i - j)]], dtype=torch.float64),
        torch.tensor([[i]]),
    )
    hidden = encoding.first(torch.tensor([expected], dtype=torch.float64)).relu()
    torch.testing.assert_close(actual.flatten(), encoding.second(hidden), rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize(("heads", "count"), [(8, 330), (12, 462), (16, 594)])
def test_fire_has_66_parameters_and_33_per_head(heads: int, count: int) -> None:
    assert sum(p.numel() for p in Fire(geometry(heads * 8, heads)).parameters()) == count


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (partial(Fire, mlp_width=0), "mlp_width=0"),
        (partial(Fire, init_c=0.0), "init_c=0.0"),
        (partial(Fire, init_c=1e39), r"init_c=1e\+39 .* 1000000"),
        (partial(Fire, init_threshold=-1.0), "init_threshold=-1.0"),
        (partial(Fire, init_threshold=math.inf), "init_threshold=inf"),
        (partial(Sandwich, bias_width=0), "bias_width=0"),
        (partial(Sandwich, bias_width=-4), "bias_width=-4"),
        (partial(Sandwich, bias_width=7), "bias_width=7"),
        (partial(Sandwich, base=0.0), "base=0.0"),
    ],
)
def test_invalid_parameters_of_biases_are_rejected(
    make: Callable[..., Encoding], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        make(geometry())


def test_trainable_slopes_start_at_the_fixed_ones() -> None:
    fixed, trainable = Alibi(geometry()), Alibi(geometry(), trainable=True)
    head, distance = torch.arange(4)[:, None, None], torch.arange(9.0)[None]
    assert not list(fixed.parameters()) and len(list(trainable.parameters())) == 1
    torch.testing.assert_close(
        trainable.bias(head, distance, distance), fixed.bias(head, distance, distance)
    )


def test_formula_slopes_differ_from_the_authors_unless_heads_are_a_power_of_two() -> None:
    assert formula_slopes(12)[:3] == pytest.approx([0.6299605249, 0.396850263, 0.25], rel=1e-8)
    assert formula_slopes(8) == authors_slopes(8)
    encoding = Alibi(geometry(width=96, heads=12), slopes="formula")
    actual = encoding.bias(torch.tensor(1), torch.tensor(10.0).double(), torch.tensor(10))
    assert actual.item() == pytest.approx(-3.96850263, rel=1e-8)
