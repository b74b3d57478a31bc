"""Encodings with several rotations, compared with loops over pairs of tokens."""

import math
from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor

from posenc.attention import blocks
from posenc.attention.choice import kernel_function
from posenc.attention.reference import dot_products
from posenc.check import verify_encoding
from posenc.config.errors import ConfigError
from posenc.encodings.alibi import Alibi
from posenc.encodings.base import Encoding, Geometry
from posenc.encodings.drope import Drope
from posenc.encodings.dual_chunk import DualChunk
from posenc.encodings.fire import Fire
from posenc.encodings.fox import Fox
from posenc.encodings.interleave import Interleave
from posenc.encodings.learned import Learned
from posenc.encodings.lm_infinite import LmInfinite
from posenc.encodings.longrope import LongRope
from posenc.encodings.nope import NoPE
from posenc.encodings.partial_key_offset import PartialKeyOffset
from posenc.encodings.pope import Pope
from posenc.encodings.randomized import Randomized
from posenc.encodings.rerope import ReRope
from posenc.encodings.rope import Rope
from posenc.encodings.self_extend import SelfExtend
from posenc.encodings.sinks import Sinks
from posenc.encodings.spectra import geometric, half_truncated
from posenc.encodings.t5 import T5
from posenc.encodings.temperature import Temperature
from posenc.encodings.window import Window
from posenc.encodings.wrapper import EncodingFactory, Wrapper
from posenc.encodings.xpos import Xpos

HEADS, WIDTH, TRAIN_LENGTH = 3, 8, 16
GEOMETRY = Geometry(width=HEADS * WIDTH, heads=HEADS, layers=2, train_length=TRAIN_LENGTH)
ROPE: EncodingFactory = partial(Rope, spectrum=geometric)
Distance = Callable[[int, int], float | None]
Factor = Callable[[int, int], float]


def self_extend(group: int, window: int) -> Distance:
    """|i - j| < w: i - j; else floor(i/G) + w - w/G - floor(j/G)."""
    return lambda i, j: (
        i - j if i - j < window else i // group + window - window / group - j // group
    )


def dual_chunk(chunk: int, local: int) -> Distance:
    """Keys are at j mod c; queries at i mod c, min(i mod c + c, chunk) or min(2c - 1, chunk)."""
    c = chunk - local

    def distance(i: int, j: int) -> float:
        if i // c == j // c:
            return i - j
        if i // c == j // c + 1:
            return min(i % c + c, chunk) - j % c
        return min(c - 1 + c, chunk) - j % c

    return distance


def lm_infinite(size: int, start_size: int) -> Distance:
    """min(i - j, size) where i - j < size or j < start_size; other keys are masked."""
    return lambda i, j: min(i - j, size) if i - j < size or j < start_size else None


def unscaled(i: int, length: int) -> float:
    """Return the factor of query i of `length` tokens, which is always 1."""
    return 1.0


def log_n(i: int, length: int) -> float:
    return max(1.0, math.log(i + 1) / math.log(TRAIN_LENGTH))


def squared_magnitude(slope: float) -> Factor:
    return lambda i, length: (1 + slope * math.log(length / TRAIN_LENGTH)) ** 2


CASES: list[tuple[EncodingFactory, Distance, Factor]] = [
    (partial(SelfExtend, inner=ROPE), self_extend(8, 4), unscaled),
    (partial(SelfExtend, inner=ROPE, group_size=3, window_size=7), self_extend(3, 7), unscaled),
    (partial(SelfExtend, inner=ROPE, group_size=50, window_size=1), self_extend(50, 1), unscaled),
    (partial(SelfExtend, inner=ROPE, group_size=1, window_size=5), lambda i, j: i - j, unscaled),
    (partial(ReRope, inner=ROPE), lambda i, j: min(i - j, 4), log_n),
    (partial(ReRope, inner=ROPE, window_size=7, log_n=False), lambda i, j: min(i - j, 7), unscaled),
    (partial(DualChunk, inner=ROPE), dual_chunk(12, 2), squared_magnitude(0.05)),
    (
        partial(DualChunk, inner=ROPE, chunk_size=11, local_size=8, scale=0.3),
        dual_chunk(11, 8),
        squared_magnitude(0.3),
    ),
    (
        partial(DualChunk, inner=ROPE, chunk_size=9, local_size=0, scale=0),
        dual_chunk(9, 0),
        unscaled,
    ),
    (partial(LmInfinite, inner=ROPE), lm_infinite(16, 10), unscaled),
    (partial(LmInfinite, inner=ROPE, size=5, start_size=3), lm_infinite(5, 3), unscaled),
    (
        partial(LmInfinite, inner=partial(Window, inner=ROPE, size=8), size=6, start_size=50),
        lambda i, j: min(i - j, 6) if i - j < 8 else None,
        unscaled,
    ),
]
"""An encoding, the distance between query i and key j (None: masked), and a factor of the query."""
ENCODINGS = [case[0] for case in CASES]


def inputs(length: int) -> tuple[Tensor, ...]:
    """Return x [2, T, D] and q, k, v [2, H, T, d] in float64."""
    generator = torch.Generator().manual_seed(length)
    x = torch.randn(2, length, GEOMETRY.width, generator=generator, dtype=torch.float64)
    qkv = torch.randn(3, 2, HEADS, length, WIDTH, generator=generator, dtype=torch.float64)
    return x, *qkv.unbind(0)


def attend(encoding: Encoding, kernel: str, tensors: tuple[Tensor, ...], pos: Tensor) -> Tensor:
    x, q, k, v = tensors
    return kernel_function(kernel)(encoding, x, *encoding.rotate(x, q, k, pos), v, pos)


def expected_attention(distance: Distance, factor: Factor, length: int) -> Tensor:
    """Return attention whose scores are the real parts of q conj(k) e^(i distance theta)."""
    _, q, k, v = inputs(length)
    theta = [10000 ** (-2 * p / WIDTH) for p in range(WIDTH // 2)]
    complex_q, complex_k = (torch.complex(*part.chunk(2, dim=-1)) for part in (q, k))
    out = torch.zeros_like(v)
    for i in range(length):
        scores, visible = [], []
        for j in range(i + 1):
            pair_distance = distance(i, j)
            if pair_distance is None:
                continue
            visible.append(j)
            phases = torch.tensor([pair_distance * t for t in theta], dtype=torch.float64)
            rotated = complex_q[:, :, i] * complex_k[:, :, j].conj() * torch.exp(1j * phases)
            scores.append(factor(i, length) * rotated.real.sum(-1) / math.sqrt(WIDTH))
        weights = torch.stack(scores, dim=-1).softmax(-1)
        out[:, :, i] = torch.einsum("bhj,bhjd->bhd", weights, v[:, :, visible])
    return out


@pytest.mark.parametrize(("make", "distance", "factor"), CASES)
def test_attention_equals_a_loop_over_all_pairs(
    make: EncodingFactory, distance: Distance, factor: Factor
) -> None:
    length = 43
    expected = expected_attention(distance, factor, length)
    encoding, pos = make(GEOMETRY), torch.arange(length)
    for kernel in ("reference", "auto"):
        actual = attend(encoding, kernel, inputs(length), pos)
        torch.testing.assert_close(actual, expected, rtol=0, atol=1e-12)
    in_float32 = tuple(tensor.float() for tensor in inputs(length))
    for kernel in ("reference", "auto"):
        actual = attend(encoding, kernel, in_float32, pos).double()
        torch.testing.assert_close(actual, expected, rtol=0, atol=1e-5)


def distance_of(make: EncodingFactory, train_length: int, i: int, j: int) -> float:
    """Return the distance from query i to key j, whose score is cos(distance / 10,000)."""
    encoding = make(Geometry(width=4, heads=1, layers=1, train_length=train_length))
    pos = torch.tensor([0, j, i])
    unit = torch.tensor([0.0, 1, 0, 0], dtype=torch.float64).expand(1, 1, 3, 4)
    q, k = encoding.rotate(torch.zeros(1, 3, 4), unit, unit, pos)
    last, keys = slice(2, 3), slice(0, 3)
    products = dot_products(encoding, q[:, :, last], k, pos, last, keys)
    return 1e4 * math.acos(products[0, 0, 0, 1].item())


SLOW_ROPE = partial(Rope, spectrum=partial(geometric, base=1e8))


@pytest.mark.parametrize(
    ("make", "i", "j", "expected"),
    [
        (partial(SelfExtend, inner=SLOW_ROPE), 5000, 1000, 1396),
        (partial(SelfExtend, inner=SLOW_ROPE), 2048, 1024, 1024),
        (partial(SelfExtend, inner=SLOW_ROPE), 2048, 1025, 1023),
        (partial(ReRope, inner=SLOW_ROPE, log_n=False), 5000, 1000, 1024),
        (partial(ReRope, inner=SLOW_ROPE, log_n=False), 5000, 4000, 1000),
        (partial(DualChunk, inner=SLOW_ROPE), 5000, 4000, 1000),
        (partial(DualChunk, inner=SLOW_ROPE), 2600, 2300, 300),
        (partial(DualChunk, inner=SLOW_ROPE), 5000, 1000, 3072 - 1000),
        (partial(DualChunk, inner=SLOW_ROPE), 9000, 100, 3072 - 100),
    ],
)
def test_distances_match_golden_values(
    make: EncodingFactory, i: int, j: int, expected: float
) -> None:
    """The training length is 4096 tokens."""
    assert distance_of(make, 4096, i, j) == pytest.approx(expected, rel=1e-6)


class WithTrainableAlibi(Wrapper):
    """A learnable bias added to an encoding with several rotations."""

    def __init__(self, geometry: Geometry, *, inner: EncodingFactory) -> None:
        super().__init__(geometry, inner)
        self.alibi = Alibi(geometry, trainable=True)

    def bias(self, head: Tensor, distance: Tensor, pos_q: Tensor) -> Tensor:
        return self.alibi.bias(head, distance, pos_q)


WRAPPERS: dict[str, Callable[..., EncodingFactory]] = {
    "alone": lambda inner: inner,
    "window": lambda inner: partial(Window, inner=inner, size=7),
    "sink": lambda inner: partial(Sinks, inner=inner, logit=0.5),
    "learnable bias": lambda inner: partial(WithTrainableAlibi, inner=inner),
}


@pytest.mark.parametrize("make", ENCODINGS)
@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_blocks_equal_the_reference_in_outputs_and_gradients(
    make: EncodingFactory, wrapper: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocks, "ROW_LIMITS", (16, 16))
    encoding, length = WRAPPERS[wrapper](make)(GEOMETRY).double(), 53
    results = []
    for kernel in ("reference", "blocks"):
        tensors = tuple(tensor.requires_grad_() for tensor in inputs(length))
        out = attend(encoding, kernel, tensors, torch.arange(length))
        weights = torch.linspace(-1, 1, out.numel(), dtype=out.dtype).view_as(out)
        leaves = [*tensors[1:], *encoding.parameters()]
        grads = torch.autograd.grad((out * weights).sum(), leaves, materialize_grads=True)
        results.append([out, *grads])
    for expected, actual in zip(*results, strict=True):
        torch.testing.assert_close(actual, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("make", "length"),
    [
        (partial(SelfExtend, inner=ROPE), 4),
        (partial(SelfExtend, inner=ROPE, group_size=3, window_size=23), 23),
        (partial(ReRope, inner=ROPE), 4),
        (partial(ReRope, inner=ROPE, window_size=23, log_n=False), 23),
        (partial(DualChunk, inner=ROPE), 10),
        (partial(DualChunk, inner=ROPE, chunk_size=30, local_size=7, scale=0), 23),
        (partial(LmInfinite, inner=ROPE), 16),
        (partial(LmInfinite, inner=ROPE, size=23, start_size=1), 23),
    ],
)
def test_short_sequences_are_encoded_by_plain_rope(make: EncodingFactory, length: int) -> None:
    for offset in (0, 77):
        pos = torch.arange(length) + offset
        for kernel in ("reference", "auto"):
            expected = attend(ROPE(GEOMETRY), kernel, inputs(length), pos)
            actual = attend(make(GEOMETRY), kernel, inputs(length), pos)
            torch.testing.assert_close(actual, expected, rtol=0, atol=1e-12)
    longer = attend(make(GEOMETRY), "auto", inputs(length + 30), torch.arange(length + 30))
    plain = attend(ROPE(GEOMETRY), "auto", inputs(length + 30), torch.arange(length + 30))
    assert (longer - plain).abs().max() > 1e-3


@pytest.mark.parametrize("make", ENCODINGS)
def test_positions_count_from_the_first_token(make: EncodingFactory) -> None:
    pos = torch.arange(41)
    expected = attend(make(GEOMETRY), "auto", inputs(41), pos)
    actual = attend(make(GEOMETRY), "auto", inputs(41), pos + 1234)
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize(
    "make", [SelfExtend, partial(ReRope, log_n=False), partial(DualChunk, scale=0)]
)
def test_wrappers_around_rope_keep_their_effect(make: Callable[..., Encoding]) -> None:
    """The order of two wrappers does not matter."""
    for outer in (partial(Window, size=11), partial(Temperature, rule="log_n")):
        pos = torch.arange(41)
        one = make(GEOMETRY, inner=partial(outer, inner=ROPE))
        other = outer(GEOMETRY, inner=partial(make, inner=ROPE))
        expected = attend(one, "auto", inputs(41), pos)
        torch.testing.assert_close(attend(other, "auto", inputs(41), pos), expected)
        without_outer = attend(make(GEOMETRY, inner=ROPE), "auto", inputs(41), pos)
        assert (expected - without_outer).abs().max() > 1e-3
    hybrid = make(GEOMETRY, inner=partial(Interleave, first=ROPE, second=NoPE))
    first, second = (attend(hybrid.at_layer(i), "auto", inputs(41), pos) for i in range(2))
    plain = make(GEOMETRY, inner=ROPE)
    torch.testing.assert_close(first, attend(plain, "auto", inputs(41), pos))
    torch.testing.assert_close(second, attend(NoPE(GEOMETRY), "auto", inputs(41), pos))


def test_an_offset_of_keys_stays_one_token() -> None:
    inner = partial(PartialKeyOffset, spectrum=half_truncated)
    encoding, tensors = SelfExtend(GEOMETRY, inner=inner, group_size=1), inputs(41)
    expected = attend(inner(GEOMETRY), "auto", tensors, torch.arange(41))
    torch.testing.assert_close(attend(encoding, "auto", tensors, torch.arange(41)), expected)


@pytest.mark.parametrize("make", [SelfExtend, ReRope, DualChunk])
@pytest.mark.parametrize(
    "inner",
    [
        NoPE,
        Alibi,
        partial(Learned, max_length=64),
        partial(Xpos, spectrum=geometric),
        partial(LongRope, spectrum=geometric),
        partial(Pope, spectrum=geometric),
        partial(Randomized, inner=ROPE),
        partial(SelfExtend, inner=ROPE),
        partial(Drope, inner=ROPE),
        partial(Interleave, first=ROPE, second=partial(Xpos, spectrum=geometric)),
    ],
)
def test_inner_encodings_other_than_rope_are_rejected(
    make: Callable[..., Encoding], inner: EncodingFactory
) -> None:
    with pytest.raises(ValueError, match=r"inner=\w+ must rotate .* choose rope"):
        make(GEOMETRY, inner=inner)


def test_randomized_rejects_encodings_that_select_rotations() -> None:
    with pytest.raises(ValueError, match="inner=SelfExtend selects rotations by the positions"):
        Randomized(GEOMETRY, inner=partial(SelfExtend, inner=ROPE))


def test_coordinates_are_rejected() -> None:
    coordinates = torch.zeros(2, 5, 2)
    x, q, k, _ = inputs(5)
    encoding = SelfExtend(GEOMETRY, inner=ROPE)
    with pytest.raises(ValueError, match="one position per token"):
        encoding.rotate(x, q, k, coordinates)


def test_rerope_with_log_n_needs_a_training_length_of_at_least_2() -> None:
    geometry = Geometry(width=8, heads=1, layers=1, train_length=1)
    with pytest.raises(ValueError, match=r"train_length=1 .* log_n=false"):
        ReRope(geometry, inner=ROPE)
    ReRope(geometry, inner=ROPE, log_n=False)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (partial(SelfExtend, group_size=0), "group_size=0 .* at least 1"),
        (partial(SelfExtend, window_size=0), "window_size=0 .* at least 1"),
        (partial(ReRope, window_size=-3), "window_size=-3 .* at least 1"),
        (partial(LmInfinite, size=0), "size=0 must be at least 1"),
        (partial(LmInfinite, start_size=0), "start_size=0 must be at least 1"),
        (partial(DualChunk, chunk_size=0), "local_size=2 .* chunk_size=0"),
        (partial(DualChunk, local_size=12), "local_size=12 .* chunk_size=12"),
        (partial(DualChunk, local_size=-1), "local_size=-1 must be non-negative"),
        (partial(DualChunk, scale=-0.1), "scale=-0.1 must be non-negative"),
        (partial(DualChunk, scale=math.inf), "scale=inf must be .* finite"),
    ],
)
def test_invalid_parameters_are_rejected(make: Callable[..., Encoding], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make(GEOMETRY, inner=ROPE)


@pytest.mark.parametrize("kernel", ["reference", "auto"])
@pytest.mark.parametrize("inner", [Alibi, partial(T5, max_distance=40)])
def test_lm_infinite_limits_the_distance_of_a_bias(inner: EncodingFactory, kernel: str) -> None:
    torch.manual_seed(0)
    encoding, (x, q, k, v) = LmInfinite(GEOMETRY, inner=inner, size=7, start_size=3), inputs(43)
    assert not encoding.overrides("rotate") and not encoding.overrides("rotation_index")
    with torch.no_grad():
        actual = attend(encoding, kernel, (x, q, k, v), torch.arange(43))
        head = torch.arange(HEADS)[:, None]
        for i in range(43):
            keys = torch.tensor([j for j in range(i + 1) if i - j < 7 or j < 3])
            distance = torch.tensor([min(i - j, 7) for j in keys.tolist()]).double()
            bias = encoding.inner.bias(head, distance, torch.tensor([float(i)]))
            assert bias is not None
            scores = torch.einsum("bhd,bhjd->bhj", q[:, :, i], k[:, :, keys]) / math.sqrt(WIDTH)
            out = torch.einsum("bhj,bhjd->bhd", (scores + bias).softmax(-1), v[:, :, keys])
            torch.testing.assert_close(actual[:, :, i], out, rtol=0, atol=1e-12)


@pytest.mark.parametrize("inner", [NoPE, Fox, Fire, partial(Learned, max_length=64)])
def test_lm_infinite_rejects_encodings_without_distances(inner: EncodingFactory) -> None:
    with pytest.raises(ValueError, match=r"inner=\w+ must use distances .* choose rope or alibi"):
        LmInfinite(GEOMETRY, inner=inner)


class MissingRotation(Encoding):
    """Has two rotations, but selects indices beyond them."""

    def rotate(self, x: Tensor, q: Tensor, k: Tensor, pos: Tensor) -> tuple[Tensor, Tensor]:
        return torch.cat([q, q], dim=-1), torch.cat([k, -k], dim=-1)

    def rotation_index(self, pos_q: Tensor, pos_k: Tensor) -> Tensor:
        return (pos_q - pos_k).clamp(min=0) // 2


def test_planning_rejects_an_index_without_a_rotation() -> None:
    with pytest.raises(ConfigError, match=r"rotation_index returned int64 .* n = 16 / 8") as error:
        verify_encoding(MissingRotation(GEOMETRY), torch.float32)
    assert "test_rotation_ranges.py, line" in str(error.value)
