"""Attention and scores of a model's layers against plain loops and closed forms."""

import math
from collections.abc import Callable
from typing import cast

import pytest
import torch
from omegaconf import DictConfig
from torch import Tensor

from posenc.attention import blocks
from posenc.inspect.run import tables
from posenc.inspect.run.attention import ByDistance, ByPosition, moved
from posenc.inspect.run.scores import REGIONS, Scores
from posenc.inspect.run.watch import Rows, watch
from posenc.model.block import Block
from posenc.model.build import build_model
from posenc.model.transformer import Decoder

TRAINED, LENGTH, WIDTH, HEADS, VOCABULARY = 6, 17, 32, 4, 40
SLOPES = [2.0 ** (-2 * h) for h in range(1, HEADS + 1)]
Built = Callable[..., Decoder]


@pytest.fixture
def built(configured: Callable[..., DictConfig]) -> Built:
    """A model of one layer in float64, for windows of 6 tokens."""

    def make(*overrides: str) -> Decoder:
        words = [f"train_length={TRAINED}", "model.layers=1", *overrides]
        return build_model(configured(*words), VOCABULARY).double()

    return make


@pytest.fixture
def tokens() -> Tensor:
    return torch.randint(VOCABULARY, (3, LENGTH), generator=torch.Generator().manual_seed(3))


@pytest.fixture(autouse=True)
def several_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "ROWS", (5, 5))


def without_content(model: Decoder) -> Decoder:
    """The model with queries and keys of zero."""
    with torch.no_grad():
        model.get_parameter("blocks.0.attention.qkv.weight")[: 2 * WIDTH] = 0
    return model


def plain_scores(model: Decoder, tokens: Tensor, encoding: str) -> list[list[list[list[float]]]]:
    """Scores of the first layer [B][H][i][j <= i], a pair at a time, from the weights."""
    width = WIDTH // HEADS
    weight = model.get_parameter("blocks.0.attention.qkv.weight").detach()
    found = []
    for window in tokens:
        x = WIDTH**0.5 * model.get_parameter("embedding.weight").detach()[window]
        x = (x - x.mean(-1, keepdim=True)) / (x.var(-1, correction=0, keepdim=True) + 1e-5).sqrt()
        q, k = (
            (x @ part.T).unflatten(-1, (HEADS, width)) for part in weight[: 2 * WIDTH].split(WIDTH)
        )
        found.append([])
        for h in range(HEADS):
            rows = []
            for i in range(len(window)):
                row = []
                for j in range(i + 1):
                    a, b = q[i, h], k[j, h]
                    if encoding == "rope":
                        half = width // 2
                        z = torch.complex(a[:half], a[half:]) * torch.complex(b[:half], -b[half:])
                        turns = [(i - j) * 10000 ** (-2 * n / width) for n in range(half)]
                        score = sum(
                            float(c.real) * math.cos(t) - float(c.imag) * math.sin(t)
                            for c, t in zip(z, turns, strict=True)
                        )
                    else:
                        score = float(a @ b)
                    score /= math.sqrt(width)
                    row.append(score - (SLOPES[h] * (i - j) if encoding == "alibi" else 0))
                rows.append(row)
            found[-1].append(rows)
    return found


def softmax(row: list[float]) -> list[float]:
    exps = [math.exp(score - max(row)) for score in row]
    return [e / sum(exps) for e in exps]


@pytest.mark.parametrize("encoding", ["nope", "rope", "alibi"])
def test_everything_summed_equals_loops_over_pairs(
    built: Built, tokens: Tensor, encoding: str
) -> None:
    model = built(f"encoding={encoding}")
    distances = ByDistance(1, HEADS, LENGTH, TRAINED)
    positions = ByPosition(1, HEADS, LENGTH, TRAINED)
    regions = Scores(1, HEADS, TRAINED)
    watch(model, tokens, [distances, positions, regions])
    plain = plain_scores(model, tokens, encoding)
    for h in range(HEADS):
        share, entropy = [0.0] * LENGTH, [0.0] * LENGTH
        first, mean, past = [0.0] * LENGTH, [0.0] * LENGTH, [0.0] * LENGTH
        pairs: dict[str, list[float]] = {region: [] for region in REGIONS}
        for window in plain:
            for i, row in enumerate(window[h]):
                for j, (score, weight) in enumerate(zip(row, softmax(row), strict=True)):
                    d = i - j
                    if i >= TRAINED:
                        share[d] += weight / (len(plain) * (LENGTH - TRAINED))
                    entropy[i] -= weight * math.log(weight)
                    first[i] += weight if j == 0 else 0
                    mean[i] += weight * d
                    past[i] += weight if d >= TRAINED else 0
                    region = "within" if i < TRAINED else "near" if d < TRAINED else "far"
                    pairs[region].append(score)
        assert distances.shares()[0, h].tolist() == pytest.approx(share, abs=1e-9)
        for name, wanted in zip(tables.PER_QUERY, (entropy, first, mean, past), strict=True):
            assert getattr(positions, name)[0, h].tolist() == pytest.approx(wanted, abs=1e-8), name
        for n, region in enumerate(REGIONS):
            scores = torch.tensor(pairs[region], dtype=torch.float64)
            assert regions.count[0, h, n] == len(scores)
            found = [getattr(regions, name)[0, h, n] for name in ("lowest", "highest")]
            found += [regions.mean()[0, h, n], regions.std()[0, h, n]]
            wanted = [scores.min(), scores.max(), scores.mean(), scores.std(correction=0)]
            assert torch.stack(found).tolist() == pytest.approx(torch.stack(wanted).tolist())
    assert positions.windows == len(tokens)


def test_alibi_without_content_attends_as_a_geometric_series(built: Built, tokens: Tensor) -> None:
    model = without_content(built("encoding=alibi"))
    found = ByDistance(1, HEADS, LENGTH, TRAINED)
    watch(model, tokens, [found])
    rows = tables.by_distance(LENGTH, found, TRAINED)
    for h, slope in enumerate(SLOPES):
        ratio = math.exp(-slope)
        totals = {i: (1 - ratio ** (i + 1)) / (1 - ratio) for i in range(TRAINED, LENGTH)}
        per_key = [
            sum(ratio**d / total for i, total in totals.items() if d <= i)
            / sum(d <= i for i in totals)
            for d in range(LENGTH)
        ]
        of_head = [row for row in rows if row["head"] == h]
        assert [row["per_key"] for row in of_head] == pytest.approx(per_key)
        assert [row["added"] for row in of_head] == pytest.approx(
            [-slope * d for d in range(LENGTH)]
        )


def test_no_positions_and_no_content_attend_to_all_alike(built: Built, tokens: Tensor) -> None:
    model = without_content(built("encoding=nope"))
    found = ByPosition(1, HEADS, LENGTH, TRAINED)
    watch(model, tokens, [found])
    i = torch.arange(LENGTH, dtype=torch.float64)
    wanted = ((i + 1).log(), 1 / (i + 1), i / 2, (i + 1 - TRAINED).clamp(min=0) / (i + 1))
    for name, curve in zip(tables.PER_QUERY, wanted, strict=True):
        mean = getattr(found, name) / found.windows
        assert torch.allclose(mean, curve.expand_as(mean)), name


def test_keys_outside_a_window_are_no_pairs(built: Built, tokens: Tensor) -> None:
    model = without_content(built("encoding=window", "encoding.size=4"))
    distances, positions = ByDistance(1, HEADS, LENGTH, 8), ByPosition(1, HEADS, LENGTH, TRAINED)
    watch(model, tokens, [distances, positions])
    assert distances.shares()[0, 0].tolist() == pytest.approx([0.25] * 4 + [0.0] * (LENGTH - 4))
    assert distances.pairs[0].tolist() == [27.0] * 4 + [0.0] * (LENGTH - 4)
    assert positions.first[0, 0].tolist()[4:] == [0.0] * (LENGTH - 4)


def test_watching_changes_nothing_and_shows_every_row_of_every_layer_once(
    built: Built, tokens: Tensor
) -> None:
    model = built("encoding=t5", "model.layers=2")
    shown: list[tuple[int, int, int]] = []

    class Seen:
        def see(self, rows: Rows) -> None:
            assert torch.allclose(rows.weights.sum(-1), torch.ones(()).double())
            shown.append((rows.layer.index, rows.rows.start, rows.rows.stop))

    before = model(tokens)
    layers = [cast(Block, block).attention for block in model.blocks]
    kernels = [layer.attend for layer in layers]
    watch(model, tokens, [Seen()])
    assert [layer.attend for layer in layers] == kernels
    assert torch.equal(model(tokens), before)
    assert shown == [(n, i, min(i + 5, LENGTH)) for n in range(2) for i in range(0, LENGTH, 5)]


@pytest.mark.parametrize(
    ("there", "wanted"),
    [
        ([0.5, 0.25, 0.25], 0),
        ([0.2, 0.1, 0.3, 0.4], 0),  # thinner, and no more than that
        ([0.25, 0.25, 0.5], 1 / 6),
        ([0.0, 1.0], 2 / 3),
        ([0.0, 0.0, 1.0], 0.5),  # nothing is left there
    ],
)
def test_moved_is_the_total_variation_of_what_is_near(there: list[float], wanted: float) -> None:
    here = torch.tensor([0.5, 0.25, 0.25]).double()
    found = moved(here, torch.tensor(there).double(), 2)
    assert float(found) == pytest.approx(wanted, abs=1e-12)


def test_rows_by_distance_cover_every_distance_and_cut_at_the_training_length(
    built: Built,
) -> None:
    length, trained = 700, 300
    edges = tables.distance_edges(length, trained)
    assert edges[:33] == list(range(33)) and edges[-1] == length and trained in edges
    assert edges == sorted(set(edges))
    found = ByDistance(1, 1, length, trained)
    found.queries, found.pairs = 1, torch.ones(1, length).double()
    found.weights = torch.arange(length).double()[None, None]
    rows = tables.by_distance(length, found, trained)
    assert sum(row["attention"] for row in rows) == length * (length - 1) / 2
    past = [row["attention"] for row in rows if row["start"] >= trained]
    assert sum(past) == sum(range(trained, length))
    assert rows[-1]["per_key"] == pytest.approx((rows[-1]["start"] + length - 1) / 2)
