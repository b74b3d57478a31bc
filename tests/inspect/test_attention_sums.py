"""Attention and scores of a model's layers, compared with plain loops and closed forms."""

import math
from collections.abc import Callable
from typing import cast

import pytest
import torch
from omegaconf import DictConfig
from torch import Tensor

from posenc.attention import blocks
from posenc.inspect.run.attention_sums import (
    MEANS,
    REGIONS,
    AttentionByDistance,
    AttentionByPosition,
    ScoreRegions,
    distance_edges,
    head_rows,
    total_variation,
)
from posenc.inspect.run.observe import (
    ObservedBlock,
    observe_attention,
)
from posenc.model.block import Block
from posenc.model.build import build_model
from posenc.model.transformer import Decoder

TRAIN_LENGTH, LENGTH, WIDTH, HEADS, VOCABULARY = 6, 17, 32, 4, 40
SLOPES = [2.0 ** (-2 * h) for h in range(1, HEADS + 1)]
MakeModel = Callable[..., Decoder]


@pytest.fixture
def make_model(configured: Callable[..., DictConfig]) -> MakeModel:
    """Builds a one-layer model in float64 with a training length of 6."""

    def make(*overrides: str) -> Decoder:
        config = configured(f"train_length={TRAIN_LENGTH}", "model.layers=1", *overrides)
        return build_model(config, VOCABULARY).double()

    return make


@pytest.fixture
def tokens() -> Tensor:
    return torch.randint(VOCABULARY, (3, LENGTH), generator=torch.Generator().manual_seed(3))


@pytest.fixture(autouse=True)
def several_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Observe attention in several blocks of 5 query rows."""
    monkeypatch.setattr(blocks, "ROW_LIMITS", (5, 5))


def without_content(model: Decoder) -> Decoder:
    """Return the model with zero queries and keys, so that scores depend only on positions."""
    with torch.no_grad():
        model.get_parameter("blocks.0.attention.qkv.weight")[: 2 * WIDTH] = 0
    return model


def plain_scores(model: Decoder, tokens: Tensor, encoding: str) -> list[list[list[list[float]]]]:
    """Return the scores of the first layer [B][H][i][j <= i], computed one pair at a time."""
    width = WIDTH // HEADS
    weight = model.get_parameter("blocks.0.attention.qkv.weight").detach()
    scores = []
    for window in tokens:
        x = WIDTH**0.5 * model.get_parameter("embedding.weight").detach()[window]
        x = (x - x.mean(-1, keepdim=True)) / (x.var(-1, correction=0, keepdim=True) + 1e-5).sqrt()
        q, k = (
            (x @ part.T).unflatten(-1, (HEADS, width)) for part in weight[: 2 * WIDTH].split(WIDTH)
        )
        scores.append([])
        for h in range(HEADS):
            rows = []
            for i in range(len(window)):
                row = []
                for j in range(i + 1):
                    a, b = q[i, h], k[j, h]
                    if encoding == "rope":
                        half = width // 2
                        z = torch.complex(a[:half], a[half:]) * torch.complex(b[:half], -b[half:])
                        angles = [(i - j) * 10000 ** (-2 * n / width) for n in range(half)]
                        score = sum(
                            float(c.real) * math.cos(t) - float(c.imag) * math.sin(t)
                            for c, t in zip(z, angles, strict=True)
                        )
                    else:
                        score = float(a @ b)
                    score /= math.sqrt(width)
                    row.append(score - (SLOPES[h] * (i - j) if encoding == "alibi" else 0))
                rows.append(row)
            scores[-1].append(rows)
    return scores


def softmax(row: list[float]) -> list[float]:
    exps = [math.exp(score - max(row)) for score in row]
    return [e / sum(exps) for e in exps]


@pytest.mark.parametrize("encoding", ["nope", "rope", "alibi"])
def test_all_sums_equal_loops_over_pairs(
    make_model: MakeModel, tokens: Tensor, encoding: str
) -> None:
    model = make_model(f"encoding={encoding}")
    distances = AttentionByDistance(1, HEADS, LENGTH, TRAIN_LENGTH)
    positions = AttentionByPosition(1, HEADS, LENGTH, TRAIN_LENGTH)
    regions = ScoreRegions(1, HEADS, TRAIN_LENGTH)
    observe_attention(model, tokens, [distances, positions, regions])
    plain = plain_scores(model, tokens, encoding)
    for h in range(HEADS):
        fraction, entropy = [0.0] * LENGTH, [0.0] * LENGTH
        first, mean, beyond = [0.0] * LENGTH, [0.0] * LENGTH, [0.0] * LENGTH
        pairs: dict[str, list[float]] = {region: [] for region in REGIONS}
        for window in plain:
            for i, row in enumerate(window[h]):
                for j, (score, weight) in enumerate(zip(row, softmax(row), strict=True)):
                    d = i - j
                    if i >= TRAIN_LENGTH:
                        fraction[d] += weight / (len(plain) * (LENGTH - TRAIN_LENGTH))
                    entropy[i] -= weight * math.log(weight)
                    first[i] += weight if j == 0 else 0
                    mean[i] += weight * d
                    beyond[i] += weight if d >= TRAIN_LENGTH else 0
                    region = "within" if i < TRAIN_LENGTH else "near" if d < TRAIN_LENGTH else "far"
                    pairs[region].append(score)
        assert distances.fractions()[0, h].tolist() == pytest.approx(fraction, abs=1e-9)
        for name, expected in zip(MEANS, (entropy, first, mean, beyond), strict=True):
            assert getattr(positions, name)[0, h].tolist() == pytest.approx(expected, abs=1e-8), (
                name
            )
        for n, region in enumerate(REGIONS):
            scores = torch.tensor(pairs[region], dtype=torch.float64)
            assert regions.count[0, h, n] == len(scores)
            measured = [getattr(regions, name)[0, h, n] for name in ("min", "max")]
            measured += [regions.mean()[0, h, n], regions.std()[0, h, n]]
            expected = [scores.min(), scores.max(), scores.mean(), scores.std(correction=0)]
            assert torch.stack(measured).tolist() == pytest.approx(torch.stack(expected).tolist())
    assert positions.num_windows == len(tokens)


def test_attention_weights_of_alibi_without_content_are_a_geometric_series(
    make_model: MakeModel, tokens: Tensor
) -> None:
    model = without_content(make_model("encoding=alibi"))
    sums = AttentionByDistance(1, HEADS, LENGTH, TRAIN_LENGTH)
    observe_attention(model, tokens, [sums])
    rows = sums.rows(TRAIN_LENGTH)
    for h, slope in enumerate(SLOPES):
        ratio = math.exp(-slope)
        totals = {i: (1 - ratio ** (i + 1)) / (1 - ratio) for i in range(TRAIN_LENGTH, LENGTH)}
        per_key = [
            sum(ratio**d / total for i, total in totals.items() if d <= i)
            / sum(d <= i for i in totals)
            for d in range(LENGTH)
        ]
        in_head = [row for row in rows if row["head"] == h]
        assert [row["per_key"] for row in in_head] == pytest.approx(per_key)
        assert [row["bias"] for row in in_head] == pytest.approx(
            [-slope * d for d in range(LENGTH)]
        )


def test_nope_without_content_attends_uniformly(make_model: MakeModel, tokens: Tensor) -> None:
    model = without_content(make_model("encoding=nope"))
    sums = AttentionByPosition(1, HEADS, LENGTH, TRAIN_LENGTH)
    observe_attention(model, tokens, [sums])
    i = torch.arange(LENGTH, dtype=torch.float64)
    expected = ((i + 1).log(), 1 / (i + 1), i / 2, (i + 1 - TRAIN_LENGTH).clamp(min=0) / (i + 1))
    for name, curve in zip(MEANS, expected, strict=True):
        mean = getattr(sums, name) / sums.num_windows
        assert torch.allclose(mean, curve.expand_as(mean)), name


@pytest.mark.parametrize("length", [3, TRAIN_LENGTH, 9, LENGTH])
def test_uniform_attention_does_not_shift_with_the_length_of_the_window(
    make_model: MakeModel, tokens: Tensor, length: int
) -> None:
    model = without_content(make_model("encoding=nope"))
    sums: dict[int, tuple[AttentionByDistance, AttentionByPosition]] = {}
    for n in (TRAIN_LENGTH, length):
        distances = AttentionByDistance(1, HEADS, n, TRAIN_LENGTH if n > TRAIN_LENGTH else n // 2)
        positions = AttentionByPosition(1, HEADS, n, TRAIN_LENGTH)
        observe_attention(model, tokens[:, :n], [distances, positions])
        sums[n] = distances, positions
    rows = head_rows(*sums[length], sums[TRAIN_LENGTH][0].fractions())
    assert [row["shift"] for row in rows] == pytest.approx([0.0] * HEADS, abs=1e-12)


def test_keys_outside_a_window_are_not_counted(make_model: MakeModel, tokens: Tensor) -> None:
    model = without_content(make_model("encoding=window", "encoding.size=4"))
    distances, positions = (
        AttentionByDistance(1, HEADS, LENGTH, 8),
        AttentionByPosition(1, HEADS, LENGTH, TRAIN_LENGTH),
    )
    observe_attention(model, tokens, [distances, positions])
    assert distances.fractions()[0, 0].tolist() == pytest.approx([0.25] * 4 + [0.0] * (LENGTH - 4))
    assert distances.pairs[0].tolist() == [27.0] * 4 + [0.0] * (LENGTH - 4)
    assert positions.first[0, 0].tolist()[4:] == [0.0] * (LENGTH - 4)


def test_observers_see_every_row_of_every_layer_once_and_do_not_change_the_model(
    make_model: MakeModel, tokens: Tensor
) -> None:
    model = make_model("encoding=t5", "model.layers=2")
    observed: list[tuple[int, int, int]] = []

    class Recorder:
        def observe(self, block: ObservedBlock) -> None:
            assert torch.allclose(block.weights.sum(-1), torch.ones(()).double())
            observed.append((block.layer, block.rows.start, block.rows.stop))

    before = model(tokens)
    layers = [cast(Block, block).attention for block in model.blocks]
    kernels = [layer.attend for layer in layers]
    observe_attention(model, tokens, [Recorder()])
    assert [layer.attend for layer in layers] == kernels
    assert torch.equal(model(tokens), before)
    assert observed == [(n, i, min(i + 5, LENGTH)) for n in range(2) for i in range(0, LENGTH, 5)]


@pytest.mark.parametrize(
    ("longer", "expected"),
    [
        ([0.5, 0.25, 0.25], 0),
        ([0.2, 0.1, 0.3, 0.4], 0),  # the same proportions, with attention to more keys
        ([0.25, 0.25, 0.5], 1 / 6),
        ([0.0, 1.0], 2 / 3),
        ([0.0, 0.0, 1.0], 0.5),  # no attention at the compared distances
    ],
)
def test_total_variation_compares_attention_at_the_nearest_distances(
    longer: list[float], expected: float
) -> None:
    fractions = torch.tensor([0.5, 0.25, 0.25]).double()
    distance = total_variation(fractions, torch.tensor(longer).double(), 2)
    assert float(distance) == pytest.approx(expected, abs=1e-12)


def test_rows_cover_every_distance_and_split_at_the_training_length(
    make_model: MakeModel,
) -> None:
    length, train_length = 700, 300
    edges = distance_edges(length, train_length)
    assert edges[:33] == list(range(33)) and edges[-1] == length and train_length in edges
    assert edges == sorted(set(edges))
    sums = AttentionByDistance(1, 1, length, train_length)
    sums.num_queries, sums.pairs = 1, torch.ones(1, length).double()
    sums.weights = torch.arange(length).double()[None, None]
    rows = sums.rows(train_length)
    assert sum(row["attention"] for row in rows) == length * (length - 1) / 2
    beyond = [row["attention"] for row in rows if row["start"] >= train_length]
    assert sum(beyond) == sum(range(train_length, length))
    assert rows[-1]["per_key"] == pytest.approx((rows[-1]["start"] + length - 1) / 2)
