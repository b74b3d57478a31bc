"""Contributions of rotary frequencies, and forget gates, of layers with known content."""

import math
from collections.abc import Callable, Iterator

import pytest
import torch
from omegaconf import DictConfig
from torch import Tensor

from posenc.attention.reference import AttentionInputs
from posenc.encodings.base import Encoding
from posenc.inspect.run.attention_sums import ForgetGates
from posenc.inspect.run.observe import ObservedBlock, observed_blocks
from posenc.inspect.run.rotary_frequencies import (
    FrequencyContributions,
    rotary_channels,
)
from posenc.model.build import build_encoding

LENGTH, HEADS, HEAD_DIM = 13, 4, 8
MakeEncoding = Callable[..., Encoding]


@pytest.fixture
def make_encoding(configured: Callable[..., DictConfig]) -> MakeEncoding:
    return lambda *overrides: build_encoding(configured(*overrides))


def random_heads(seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(2, HEADS, LENGTH, HEAD_DIM, generator=generator, dtype=torch.float64)


def layer_blocks(
    encoding: Encoding, q: Tensor, k: Tensor, index: int = 0
) -> Iterator[ObservedBlock]:
    layer, x = encoding.at_layer(index), torch.zeros(2, LENGTH, HEADS * HEAD_DIM).double()
    pos = encoding.positions(LENGTH, q.device)
    rotated = layer.rotate(x, q, k, pos)
    inputs = AttentionInputs(x, *rotated, torch.zeros_like(q), pos)
    return observed_blocks(index, layer, inputs)


def frequency_fractions(encoding: Encoding, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
    channels = rotary_channels(encoding.at_layer(0), LENGTH)
    assert channels is not None
    sums = FrequencyContributions(0, HEADS, channels)
    for block in layer_blocks(encoding, q, k):
        sums.observe(block)
    return sums.fractions()


def centered(row: list[float]) -> list[float]:
    return [value - sum(row) / len(row) for value in row]


def test_fractions_equal_loops_over_pairs_and_frequencies(make_encoding: MakeEncoding) -> None:
    q, k = random_heads(1), random_heads(2)
    norm, variation = frequency_fractions(make_encoding("encoding=rope"), q, k)
    half = HEAD_DIM // 2
    for h in range(HEADS):
        bounds, parts, whole = [0.0] * half, [0.0] * half, 0.0
        for b in range(2):
            for i in range(LENGTH):
                rows: list[list[float]] = [[] for _ in range(half)]
                for j in range(i + 1):
                    for g in range(half):
                        a = complex(q[b, h, i, g], q[b, h, i, g + half])
                        c = complex(k[b, h, j, g], k[b, h, j, g + half])
                        angle = (i - j) * 10000 ** (-2 * g / HEAD_DIM)
                        rotation = complex(math.cos(angle), math.sin(angle))
                        rows[g].append((a * c.conjugate() * rotation).real)
                        bounds[g] += abs(a) * abs(c)
                total = centered([sum(terms) for terms in zip(*rows, strict=True)])
                whole += sum(value**2 for value in total)
                for g in range(half):
                    parts[g] += sum(x * y for x, y in zip(rows[g], total, strict=True))
        assert norm[h].tolist() == pytest.approx([bound / sum(bounds) for bound in bounds])
        assert variation[h].tolist() == pytest.approx([part / whole for part in parts])


@pytest.mark.parametrize(
    ("overrides", "groups"),
    [
        (["encoding=rope"], 4),
        (["encoding=rope", "encoding.layout=interleaved"], 4),
        (["encoding=rope", "encoding.rotary_fraction=0.5"], 3),
        (["encoding=xpos"], 4),
        (["encoding=pope"], 8),
        (["encoding=window", "encoding.size=3"], 4),
        (["encoding=randomized"], 4),
    ],
)
def test_fractions_sum_to_one(
    make_encoding: MakeEncoding, overrides: list[str], groups: int
) -> None:
    for fractions in frequency_fractions(
        make_encoding(*overrides), random_heads(3), random_heads(4)
    ):
        assert fractions.shape == (HEADS, groups)
        assert fractions.sum(-1).tolist() == pytest.approx([1.0] * HEADS)


@pytest.mark.parametrize("layout", ["half", "interleaved"])
def test_a_score_in_one_pair_of_channels_belongs_to_one_frequency(
    make_encoding: MakeEncoding, layout: str
) -> None:
    pair = [2, 6] if layout == "half" else [4, 5]
    rest = [c for c in range(HEAD_DIM) if c not in pair]
    q, k = random_heads(5).index_fill(-1, torch.tensor(rest), 0), random_heads(6)
    rope = make_encoding("encoding=rope", f"encoding.layout={layout}")
    for fractions in frequency_fractions(rope, q, k):
        expected = torch.tensor([0.0, 0, 1, 0]).double().expand_as(fractions)
        assert torch.allclose(fractions, expected)


def test_frequencies_are_those_of_the_spectrum_inside_any_wrapper(
    make_encoding: MakeEncoding,
) -> None:
    expected = [10000 ** (-2 * g / HEAD_DIM) for g in range(HEAD_DIM // 2)]
    for name in ("rope", "log_n", "window"):
        channels = rotary_channels(make_encoding(f"encoding={name}").at_layer(0), 50)
        assert channels is not None, name
        assert channels.frequencies.tolist() == pytest.approx(expected), name
    partial = rotary_channels(make_encoding("encoding=rope", "encoding.rotary_fraction=0.5"), 50)
    assert partial is not None and partial.frequencies.tolist() == pytest.approx([1, 0.01, 0])
    assert partial.frequency_index.tolist() == [0, 1, 0, 1, 2, 2, 2, 2]
    mixed = make_encoding("encoding=rnope")
    assert (
        rotary_channels(mixed.at_layer(0), 50) is not None
        and rotary_channels(mixed.at_layer(1), 50) is None
    )
    for name in ("nope", "alibi", "sinusoidal", "self_extend"):
        assert rotary_channels(make_encoding(f"encoding={name}"), 50) is None


def test_forget_gates_without_content_follow_from_their_offsets(
    make_encoding: MakeEncoding,
) -> None:
    fox = make_encoding("encoding=fox").double()
    offsets = torch.tensor([-1.0, 0.5, 2.0, 5.0]).double()
    with torch.no_grad():
        fox.get_parameter("offset")[1] = offsets
    sums = ForgetGates(1, HEADS)
    for block in layer_blocks(fox, random_heads(7), random_heads(8), index=1):
        sums.observe(block)
    expected = [-math.log1p(math.exp(-b)) for b in offsets.tolist()]
    assert sums.mean().tolist() == pytest.approx(expected)
    assert sums.std().tolist() == pytest.approx([0.0] * HEADS, abs=1e-6)
    assert (sums.below_half / sums.count).tolist() == [1.0, 0.0, 0.0, 0.0]
    assert sums.count == 2 * (LENGTH - 1)
