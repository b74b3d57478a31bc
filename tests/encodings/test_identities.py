"""Identities from the literature, in their correct form where the source overstates them."""

import math
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Literal

import pytest
import torch
from omegaconf import DictConfig
from torch import Tensor, nn

from posenc.attention import reference
from posenc.encodings.alibi import Alibi
from posenc.encodings.base import Encoding, Geometry
from posenc.encodings.integers import Binary, Integers, ScaledIntegers
from posenc.encodings.rope import Layout, Rope
from posenc.encodings.sinusoidal import Sinusoidal
from posenc.encodings.spectra import (
    Spectrum,
    geometric,
    geometric_t2t,
    ntk,
    ntk_by_parts,
    p_rope,
    p_rope_reversed,
    position_interpolation,
    power,
    resonance,
    yarn,
    yarn_paper,
)
from posenc.model.block import Attention
from posenc.model.build import build_model
from posenc.model.transformer import Decoder

LAYOUTS: list[Layout] = ["interleaved", "half"]
SINUSOIDAL_LAYOUTS: dict[Layout, Literal["interleaved", "concatenated"]] = {
    "interleaved": "interleaved",
    "half": "concatenated",
}
LINEAR = partial(power, exponent=1.0)
Configured = Callable[..., DictConfig]

THE, DOG, CHASED, ANOTHER = range(4)
SENTENCE = torch.tensor([[THE, DOG, CHASED, ANOTHER, DOG]])


def geometry(width: int = 64, heads: int = 1) -> Geometry:
    return Geometry(width=width, heads=heads, layers=1, train_length=512)


def frequencies(spectrum: Spectrum, width: int, length: int = 512) -> Tensor:
    return spectrum(width, 512, length)[0]


def randn(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def attend_without_mask(
    encoding: Encoding, x: Tensor, q: Tensor, k: Tensor, v: Tensor, pos: Tensor
) -> Tensor:
    return (q @ k.mT * v.shape[-1] ** -0.5).softmax(dim=-1) @ v


def pairs(width: int, layout: Layout) -> list[tuple[int, int]]:
    """Return the two channels of each pair."""
    if layout == "interleaved":
        return [(2 * i, 2 * i + 1) for i in range(width // 2)]
    return [(i, i + width // 2) for i in range(width // 2)]


def build(config: DictConfig, *, causal: bool) -> Decoder:
    model = build_model(config, 4).double()
    for block in model.blocks if not causal else ():
        attention = block.attention
        assert isinstance(attention, Attention)
        attention.attend = attend_without_mask
    return model


@pytest.mark.parametrize("causal", [False, True])
def test_attention_without_positions_equals_pytorchs(causal: bool, configured: Configured) -> None:
    """nn.MultiheadAttention gets the weights of a block and the embeddings of the sentence."""
    model = build(configured("encoding=nope"), causal=causal)
    attention = model.blocks[0].attention
    assert isinstance(attention, Attention)
    torch_attention = nn.MultiheadAttention(
        32, 4, bias=False, batch_first=True, dtype=torch.float64
    )
    weights = {"in_proj_weight": attention.qkv.weight, "out_proj.weight": attention.out.weight}
    torch_attention.load_state_dict(weights)
    x = model.embedding(SENTENCE)
    later = torch.ones(5, 5, dtype=torch.bool).triu(1) if causal else None
    expected, _ = torch_attention(x, x, x, attn_mask=later)
    actual = attention(x, torch.arange(5), model.encoding)
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-12)
    same = torch.allclose(expected[0, 1], expected[0, 4], rtol=0, atol=1e-12)
    assert same == (not causal)


@pytest.mark.parametrize(
    ("name", "causal", "same"),
    [
        ("nope", False, True),
        ("nope", True, False),
        ("rope", False, False),
        ("sinusoidal", False, False),
        ("learned", False, False),
    ],
)
def test_equal_tokens_are_indistinguishable_without_mask_and_positions(
    name: str, causal: bool, same: bool, configured: Configured
) -> None:
    out = build(configured(f"encoding={name}"), causal=causal)(SENTENCE)[0]
    difference = (out[1] - out[4]).abs().max().item()
    assert difference < 1e-12 if same else difference > 1e-4


def test_without_mask_and_positions_the_model_is_permutation_equivariant(
    configured: Configured,
) -> None:
    order = torch.tensor([3, 1, 4, 0, 2])
    for name, causal in [("nope", False), ("nope", True), ("rope", False)]:
        model = build(configured(f"encoding={name}"), causal=causal)
        difference = (model(SENTENCE[:, order]) - model(SENTENCE)[:, order]).abs().max().item()
        assert (difference < 1e-12) == (name == "nope" and not causal)


def test_the_causal_mask_alone_does_not_distinguish_repeats_of_a_token(
    configured: Configured,
) -> None:
    dogs = torch.full((1, 6), DOG)
    out = build(configured("encoding=nope"), causal=True)(dogs)[0]
    torch.testing.assert_close(out, out[:1].expand_as(out), rtol=0, atol=1e-12)
    sinusoidal = build(configured("encoding=sinusoidal"), causal=True)(dogs)[0]
    assert (sinusoidal[1:] - sinusoidal[:1]).abs().amax(dim=-1).min() > 1e-4


def embeddings(pos: Tensor, width: int, layout: Layout, spectrum: Spectrum = geometric) -> Tensor:
    name = SINUSOIDAL_LAYOUTS[layout]
    encoding = Sinusoidal(geometry(width), spectrum=spectrum, layout=name)
    return encoding.position_embedding(pos, torch.float64)


def similarity(spectrum: Spectrum, width: int, lags: Tensor) -> Tensor:
    """Return p_m . p_(m+lag) / (p_m . p_m)."""
    layout: Layout = "interleaved"
    return (
        embeddings(lags, width, layout, spectrum)
        @ embeddings(lags[:1] * 0, width, layout, spectrum)[0]
        / (width / 2)
    )


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    "spectrum",
    [geometric, partial(geometric, base=1000.0), LINEAR, partial(power, exponent=2.0)],
)
def test_inner_products_depend_only_on_the_difference(spectrum: Spectrum, layout: Layout) -> None:
    lags = torch.tensor([0, 1, 2, 17, 500, 4096])
    expected = [
        sum(math.cos(lag * f) for f in frequencies(spectrum, 32).tolist()) for lag in lags.tolist()
    ]
    for m in (0, 3, 1000, 99_991):
        first = embeddings(torch.tensor([m]), 32, layout, spectrum)[0]
        for others in (m + lags, m - lags):
            products = embeddings(others, 32, layout, spectrum) @ first
            torch.testing.assert_close(products.tolist(), expected, rtol=0, atol=1e-9)


def test_a_diagonal_matrix_between_embeddings_adds_a_term_in_the_sum_of_positions() -> None:
    """p_m^T H p_n = 1/2 sum (a + b) cos (m-n) f + (b - a) cos (m+n) f; sines a, cosines b."""
    h, f = randn(16), frequencies(geometric, 16)
    a, b = h[0::2], h[1::2]
    for m, n in [(0, 0), (5, 2), (100, 7), (31, 90)]:
        p_m, p_n = embeddings(torch.tensor([m, n]), 16, "interleaved")
        expected = ((a + b) * ((m - n) * f).cos() + (b - a) * ((m + n) * f).cos()).sum() / 2
        torch.testing.assert_close((p_m * h * p_n).sum(), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("base", [1e3, 1e4])
def test_inner_products_decay(base: float) -> None:
    """They decay by decade, and as 1 - (ln lag + gamma) / ln base for lags below the base."""
    actual = similarity(partial(geometric, base=base), 768, torch.arange(10_000))
    decade_means = [actual[10**n : 10 ** (n + 1)].abs().mean().item() for n in range(4)]
    assert all(later < 0.75 * earlier for earlier, later in pairwise(decade_means))
    assert decade_means[-1] < 0.05
    lags = torch.tensor([10, 30, 100, 300]) * base / 1e4
    gamma = 0.5772156649015329
    expected = 1 - (lags.double().log() + gamma) / math.log(base)
    actual = similarity(partial(geometric, base=base), 8192, lags)
    torch.testing.assert_close(actual, expected, rtol=0, atol=0.05)


def test_inner_products_of_linear_frequencies_soon_cross_zero() -> None:
    """For theta_t = t with t from 0 to 1, the inner product is sin(lag) / lag."""
    lags = torch.arange(1, 300)
    actual = similarity(LINEAR, 8192, lags)
    torch.testing.assert_close(actual, (lags.double().sin() / lags), rtol=0, atol=1e-3)
    assert (actual < 0).nonzero()[0].item() + 1 == 4


@pytest.mark.parametrize("exponent", [2.0, 3.0, 4.0])
def test_inner_products_of_higher_powers_stay_positive_for_1000_tokens(exponent: float) -> None:
    assert similarity(partial(power, exponent=exponent), 768, torch.arange(1000)).min() > 0


@pytest.mark.parametrize(("base", "first"), [(100.0, 62), (1000.0, 618)])
def test_inner_products_of_geometric_frequencies_cross_zero_at_0_6165_of_the_base(
    base: float, first: int
) -> None:
    """At lag x, they are (Ci(x) - Ci(x / base)) / ln base, and Ci changes sign at 0.6165.

    So linear frequencies are not the only ones whose inner products cross zero.
    """
    actual = similarity(partial(geometric, base=base), 8192, torch.arange(700))
    assert abs((actual < 0).nonzero()[0].item() - first) <= 1


@pytest.mark.parametrize("exponent", [2.0, 3.0, 4.0])
@pytest.mark.parametrize("base", [1e3, 1e4])
def test_powers_decay_faster_nearby_and_geometric_frequencies_far_away(
    exponent: float, base: float
) -> None:
    lags = torch.tensor([0, 10, 100, 1000])
    power_steps = similarity(partial(power, exponent=exponent), 768, lags).diff()
    geometric_steps = similarity(partial(geometric, base=base), 768, lags).diff()
    assert power_steps[0] < geometric_steps[0]
    assert power_steps[2] > geometric_steps[2]


def test_a_sum_of_evenly_spaced_frequencies_is_periodic() -> None:
    """Only the integral decays: d/2 linear frequencies realign after 2 pi d/2 tokens."""
    width = 768
    period = round(2 * math.pi * width / 2)
    actual = similarity(LINEAR, width, torch.tensor([period // 2, period]))
    assert actual[0].abs() < 0.01
    assert actual[1] > 0.98


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("width", "base"), [(16, 10.0), (64, 1e4), (128, 1e7)])
@pytest.mark.parametrize("k", [1, 7, -3, 5000])
def test_a_rotation_maps_p_m_to_p_m_plus_k(k: int, width: int, base: float, layout: Layout) -> None:
    spectrum = partial(geometric, base=base)

    def shift(k: int) -> Tensor:
        matrix = torch.zeros(width, width, dtype=torch.float64)
        for i, (s, c) in enumerate(pairs(width, layout)):
            angle = k * base ** (-2 * i / width)
            matrix[s, s], matrix[s, c] = math.cos(angle), math.sin(angle)
            matrix[c, s], matrix[c, c] = -math.sin(angle), math.cos(angle)
        return matrix

    matrix = shift(k)
    pos = torch.tensor([3, 10, 511, 94_999])
    moved = embeddings(pos, width, layout, spectrum) @ matrix.T
    torch.testing.assert_close(
        moved, embeddings(pos + k, width, layout, spectrum), rtol=0, atol=1e-9
    )
    torch.testing.assert_close(matrix.T @ matrix, torch.eye(width).double(), rtol=0, atol=1e-12)
    assert torch.linalg.det(matrix).item() == pytest.approx(1, abs=1e-12)
    torch.testing.assert_close(shift(2) @ matrix, shift(k + 2), rtol=0, atol=1e-9)


@pytest.mark.parametrize(
    ("spectrum", "width", "wavelength"),
    [
        (geometric, 64, 2 * math.pi * 1e4 ** (62 / 64)),
        (geometric, 768, 2 * math.pi * 1e4 ** (766 / 768)),
        (geometric_t2t, 64, 2 * math.pi * 1e4),
    ],
)
def test_the_lowest_frequency_repeats_after_its_wavelength(
    spectrum: Spectrum, width: int, wavelength: float
) -> None:
    """Within a wavelength, no two positions are closer than neighbors; later, some are.

    The wavelength is 2 pi base^((d-2)/d), which approaches 2 pi base as d grows and equals it for
    exponents i/(d/2-1).
    """
    pos = torch.arange(2 * int(wavelength))
    slowest = embeddings(pos, 2, "interleaved", lambda *_: (frequencies(spectrum, width)[-1:], 1.0))
    angle = torch.atan2(slowest[:, 0], slowest[:, 1]).remainder(2 * math.pi)
    repeat = int(wavelength) + 1
    assert (angle[:repeat].diff() > 0).all()
    assert angle[repeat] < angle[repeat - 1]
    distance = (slowest - slowest[0]).norm(dim=-1)
    assert (distance[2 : repeat - 1] > distance[1]).all()
    assert distance[round(wavelength)] < distance[1]


def test_whole_embeddings_stay_distinct_past_the_longest_wavelength() -> None:
    """No two of 70,000 positions are closer than neighbors: other frequencies separate them."""
    pos = torch.arange(70_000)
    assert similarity(geometric_t2t, 64, pos)[1:].argmax() == 0


def test_embeddings_with_a_small_base_nearly_repeat() -> None:
    """At base 1 all frequencies are 1: 44 tokens are 7 rotations up to 0.0177 radians."""
    near = embeddings(torch.tensor([0, 44]), 64, "interleaved", partial(geometric, base=1.0))
    assert (near[0] - near[1]).abs().max() < 0.0178
    far = embeddings(torch.tensor([0, 44]), 64, "interleaved", partial(geometric, base=10.0))
    assert (far[0] - far[1]).abs().max() > 1


def test_integer_wavelengths_repeat_exactly() -> None:
    """Resonance at d=8 and base 10: wavelengths of 6, 11, 20 and 35 tokens, whose lcm is 4620."""
    spectrum = partial(resonance, base=10.0)
    period = math.lcm(6, 11, 20, 35)
    pos = torch.arange(200)
    actual = embeddings(torch.cat([pos, pos + period]), 8, "interleaved", spectrum)
    torch.testing.assert_close(actual[:200], actual[200:], rtol=0, atol=1e-9)
    first = embeddings(torch.arange(period), 8, "interleaved", spectrum)
    assert ((first[1:] - first[0]).norm(dim=-1) > 1e-3).all()


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("spectrum", [geometric, partial(geometric, base=500.0), yarn, resonance])
def test_rope_preserves_norms_and_scores_depend_on_the_difference(
    spectrum: Spectrum, layout: Layout
) -> None:
    """(R(m) q) . (R(n) k) = Re sum q_i k_i* exp(i (m-n) f_i), times YaRN's magnitude squared."""
    encoding = Rope(geometry(32), spectrum=spectrum, layout=layout)
    actual, magnitude = spectrum(32, 512, 512)
    q, k = randn(1, 1, 1, 32), randn(1, 1, 1, 32, seed=1)
    a, b = torch.tensor(pairs(32, layout)).unbind(-1)
    numbers = [torch.complex(x[0, 0, 0, a], x[0, 0, 0, b]) for x in (q, k)]
    for lag in (0, 1, 30, 4000):
        expected = (numbers[0] * numbers[1].conj() * torch.exp(1j * lag * actual)).sum().real
        for n in (0, 5, 90_000):
            rotated_q, _ = encoding.rotate(q, q, k, torch.tensor([n + lag]))
            _, rotated_k = encoding.rotate(q, q, k, torch.tensor([n]))
            torch.testing.assert_close(rotated_q.norm(), magnitude * q.norm(), rtol=1e-12, atol=0)
            score = (rotated_q * rotated_k).sum()
            torch.testing.assert_close(score, magnitude**2 * expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize(("width", "base"), [(16, 10.0), (64, 1e4), (256, 1e6)])
def test_ropes_closed_form_is_the_block_diagonal_matrix(width: int, base: float) -> None:
    """x cos + (-x_2, x_1, -x_4, x_3, ...) sin, in both layouts, with blocks (cos -sin; sin cos).

    Blocks (cos sin; -sin cos), which some texts print with this closed form, rotate backwards.
    """
    x = randn(1, 1, 3, width)
    pos = torch.tensor([1, 77, 99_999])
    spectrum = partial(geometric, base=base)
    order = [i + half * width // 2 for i in range(width // 2) for half in (0, 1)]
    to_pairs = torch.eye(width).double()[order]  # interleaved from half
    interleaved_rope = Rope(geometry(width), spectrum=spectrum, layout="interleaved")
    half_rope = Rope(geometry(width), spectrum=spectrum, layout="half")
    for row, m in enumerate(pos.tolist()):
        angles = m * base ** (-2 * torch.arange(width // 2).double() / width)
        blocks = [
            torch.stack([torch.stack([t.cos(), -t.sin()]), torch.stack([t.sin(), t.cos()])])
            for t in angles
        ]
        matrix = torch.block_diag(*blocks)
        vector = x[0, 0, row]
        swapped = torch.stack([-vector[1::2], vector[0::2]], dim=-1).flatten()
        closed_form = vector * angles.cos().repeat_interleave(2)
        closed_form = closed_form + swapped * angles.sin().repeat_interleave(2)
        torch.testing.assert_close(closed_form, matrix @ vector, rtol=0, atol=1e-12)
        actual = interleaved_rope.rotate(x, x, x, pos)[0][0, 0, row]
        torch.testing.assert_close(actual, matrix @ vector, rtol=0, atol=1e-9)
        actual = half_rope.rotate(x, x, x, pos)[1][0, 0, row]
        expected = to_pairs.T @ matrix @ to_pairs @ vector
        torch.testing.assert_close(actual, expected, rtol=0, atol=1e-9)
        actual = interleaved_rope.rotate(x, x, x, -pos)[0][0, 0, row]
        torch.testing.assert_close(actual, matrix.T @ vector, rtol=0, atol=1e-9)


def test_p_rope_is_rope_at_one_and_nope_at_zero(configured: Configured) -> None:
    """This holds for the highest and for the lowest frequencies; in between, it is neither."""
    model = build(configured("encoding=rope"), causal=True)
    nope = build(configured("encoding=nope"), causal=True)(SENTENCE)
    for layout in LAYOUTS:

        def logits(spectrum: Spectrum, layout: Layout = layout) -> Tensor:
            model.encoding = Rope(model.encoding.geometry, spectrum=spectrum, layout=layout)
            return model(SENTENCE)

        for make_spectrum in (p_rope, p_rope_reversed):
            assert torch.equal(logits(partial(make_spectrum, fraction=1.0)), logits(geometric))
            assert torch.equal(logits(partial(make_spectrum, fraction=0.0)), nope)
            half = logits(partial(make_spectrum, fraction=0.5))
            assert (half - logits(geometric)).abs().max() > 1e-6
            assert (half - nope).abs().max() > 1e-6


@pytest.mark.parametrize("width", [16, 64, 128, 256])
@pytest.mark.parametrize(("base", "factor"), [(10.0, 2.0), (1e4, 4.0), (5e5, 32.0), (1e7, 7.3)])
def test_ntk_divides_the_lowest_frequency_by_s_and_keeps_the_highest(
    width: int, base: float, factor: float
) -> None:
    plain = frequencies(partial(geometric, base=base), width)
    divided = plain / frequencies(partial(ntk, base=base, factor=factor), width)
    assert divided[0] == 1
    assert divided[-1].item() == pytest.approx(factor, rel=1e-12)
    steps = divided[1:] / divided[:-1]
    torch.testing.assert_close(steps, steps[:1].expand_as(steps), rtol=1e-12, atol=0)
    torch.testing.assert_close(
        plain / frequencies(partial(position_interpolation, base=base, factor=factor), width),
        torch.full_like(plain, factor),
        rtol=1e-12,
        atol=0,
    )


@pytest.mark.parametrize(
    ("width", "base", "length", "factor"),
    [(128, 5e5, 8192, 8.0), (64, 1e4, 512, 4.0), (64, 5e5, 131_072, 32.0), (16, 10.0, 24, 3.0)],
)
def test_llama3_is_ntk_by_parts_from_one_to_four_rotations(
    width: int, base: float, length: int, factor: float
) -> None:
    """Compare each frequency with Meta's rule, which is in terms of wavelengths."""
    actual, magnitude = ntk_by_parts(
        width, length, length, base=base, factor=factor, beta_slow=1.0, beta_fast=4.0
    )
    assert magnitude == 1
    for i, value in enumerate(actual.tolist()):
        f = base ** (-2 * i / width)
        wavelength = 2 * math.pi / f
        if wavelength < length / 4:
            expected = f
        elif wavelength > length / 1:
            expected = f / factor
        else:
            smooth = (length / wavelength - 1) / (4 - 1)
            expected = (1 - smooth) * f / factor + smooth * f
        assert value == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    ("width", "length", "factor", "largest", "pair"),
    [(64, 512, 4.0, 1.7707, 10), (128, 4096, 16.0, 3.041, 38)],
)
def test_yarns_code_and_paper_differ_most_at_a_known_pair(
    width: int, length: int, factor: float, largest: float, pair: int
) -> None:
    code_form = yarn(width, length, length, factor=factor)
    paper_form = yarn_paper(width, length, length, factor=factor)
    ratio = code_form[0] / paper_form[0]
    assert ratio.argmax() == pair
    assert ratio.max().item() == pytest.approx(largest, rel=2e-4)
    assert ratio[[0, -1]].tolist() == pytest.approx([1, 1], rel=1e-12)
    assert code_form[1] == paper_form[1] == pytest.approx(0.1 * math.log(factor) + 1, rel=1e-12)


def slopes(heads: int) -> Tensor:
    """Return the penalty of each head at distance 1."""
    one = torch.ones(1, 1, dtype=torch.float64)
    head = torch.arange(heads)[:, None, None]
    return -Alibi(geometry(8 * heads, heads)).bias(head, one, one).flatten()


@pytest.mark.parametrize("heads", [6, 8, 12, 20])
def test_alibis_key_bias_equals_the_penalty_after_softmax(heads: int) -> None:
    """m j, as in fairseq, and -m (i - j) differ by m i, the same for all keys of a row."""
    q, k, v = (randn(2, heads, 30, 8, seed=seed) for seed in range(3))
    encoding, pos = Alibi(geometry(8 * heads, heads)), torch.arange(30)
    actual = reference.attend(encoding, torch.zeros(2, 30, 8 * heads), q, k, v, pos)
    plain = q @ k.mT / math.sqrt(8)
    scores = plain + slopes(heads)[:, None, None] * pos
    weights = scores.masked_fill(pos > pos[:, None], -math.inf).softmax(dim=-1)
    torch.testing.assert_close(actual, weights @ v, rtol=0, atol=1e-12)
    weights = plain.masked_fill(pos > pos[:, None], -math.inf).softmax(dim=-1)
    assert (actual - weights @ v).abs().max() > 0.1


@pytest.mark.parametrize("heads", [1, 2, 4, 8, 16, 32])
def test_alibis_first_slope_is_the_ratio_of_its_series(heads: int) -> None:
    """The authors' 2^(-2^-(log2 H - 3)), not 2^(-2^(1/(log2 H + 3))) as in a secondary source."""
    ratio = 2 ** -(2 ** -(math.log2(heads) - 3))
    expected = [ratio**h for h in range(1, heads + 1)]
    assert slopes(heads).tolist() == pytest.approx(expected, rel=1e-12)
    assert ratio != pytest.approx(2 ** -(2 ** (1 / (math.log2(heads) + 3))), rel=0.01)


def embedding_of(encoding: Encoding, pos: Tensor) -> Tensor:
    """Return what the encoding adds to the hidden states."""
    return encoding.embed(torch.zeros(1, len(pos), encoding.geometry.width).double(), pos)[0]


@pytest.mark.parametrize(("digits", "width"), [(1, 4), (5, 5), (8, 64), (10, 12)])
def test_binary_positions_repeat_after_2_to_the_power_of_the_digits(
    digits: int, width: int
) -> None:
    encoding, period = Binary(geometry(width), digits=digits), 2**digits
    embedded = embedding_of(encoding, torch.arange(3 * period))
    assert len(embedded[:period].unique(dim=0)) == period
    assert torch.equal(embedded[:period], embedded[period : 2 * period])
    assert torch.equal(embedded[:period], embedded[2 * period :])
    changes = embedded.diff(dim=0).abs().sum(dim=0)  # of each channel, over three periods
    assert changes[0] == 3 * period - 1
    assert changes[-1] == 5  # off and on three times


def test_scaled_integers_stay_within_one_and_their_step_depends_on_the_length() -> None:
    scaled, plain = ScaledIntegers(geometry(8)), Integers(geometry(8))
    for length in (3, 4, 1000):
        pos = torch.arange(length)
        steps = embedding_of(scaled, pos)[:, 0].diff()
        assert embedding_of(scaled, pos)[[0, -1], 0].tolist() == [0, 1]
        assert steps.tolist() == pytest.approx([1 / (length - 1)] * (length - 1), rel=1e-12)
        assert embedding_of(plain, pos)[:, 0].tolist() == list(range(length))
