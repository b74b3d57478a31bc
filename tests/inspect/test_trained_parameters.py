"""Parameters, embeddings and equal tokens of models with known weights."""

import math
from collections.abc import Callable

import pytest
import torch
from omegaconf import DictConfig
from torch import Tensor

from posenc.config.errors import ConfigError
from posenc.inspect.run.identical_tokens import (
    different_pairs,
    hidden_states,
    identical_pairs,
    last_repeated_positions,
    normalized_distance,
    sentence_rows,
    text_rows,
)
from posenc.inspect.run.trained_parameters import (
    embedding_rows,
    embedding_statistics,
    parameter_rows,
    position_embeddings,
)
from posenc.model.build import build_encoding, build_model
from posenc.model.transformer import Decoder

VOCABULARY, WIDTH, TRAIN_LENGTH = 30, 32, 24
MakeModel = Callable[..., Decoder]


@pytest.fixture
def make_model(configured: Callable[..., DictConfig]) -> MakeModel:
    return lambda *overrides: build_model(configured(*overrides), VOCABULARY).double()


def random_tokens(*shape: int) -> Tensor:
    return torch.randint(VOCABULARY, shape, generator=torch.Generator().manual_seed(1))


def test_parameters_are_listed_before_and_after_training(
    configured: Callable[..., DictConfig],
) -> None:
    config = configured("encoding=t5")
    initial, trained = build_encoding(config), build_encoding(config)
    with torch.no_grad():
        trained.get_parameter("table")[3, 2] += 1
    rows = parameter_rows(initial, trained, TRAIN_LENGTH)
    assert len(rows) == 32 * 4
    differ = [row for row in rows if row["trained"] != row["initial"]]
    assert [(row["parameter"], row["index"]) for row in differ] == [("table", "3,2")]
    assert differ[0]["trained"] == pytest.approx(differ[0]["initial"] + 1)


def test_trainable_frequencies_are_in_radians_per_token(
    configured: Callable[..., DictConfig],
) -> None:
    config = configured("encoding=rope", "encoding.trainable=true")
    initial, trained = build_encoding(config), build_encoding(config)
    with torch.no_grad():
        trained.get_parameter("sinusoids.offset").add_(0.25)
    rows = [
        r
        for r in parameter_rows(initial, trained, TRAIN_LENGTH)
        if r["parameter"] == "sinusoids.frequencies"
    ]
    base = [10000 ** (-2 * i / 8) for i in range(4)]
    assert [row["initial"] for row in rows] == pytest.approx(base)
    assert [row["trained"] for row in rows] == pytest.approx([f + 0.25 for f in base])


def test_a_large_table_is_summarized_by_norms(configured: Callable[..., DictConfig]) -> None:
    encoding = build_encoding(configured("encoding=learned", "train_length=64"))
    with torch.no_grad():
        encoding.get_parameter("table")[5] = 0.5
    rows = parameter_rows(encoding, encoding, 64)
    assert [row["quantity"] for row in rows] == ["norm"] * 64
    assert rows[5]["trained"] == pytest.approx(0.5 * WIDTH**0.5)


def test_the_norm_of_sinusoids_is_the_root_of_half_their_width(make_model: MakeModel) -> None:
    model = make_model("encoding=sinusoidal")
    rows = {
        row["vectors"]: row for row in embedding_rows(model, VOCABULARY, random_tokens(2, 60), 60)
    }
    for name, count in (("positions within L", 24), ("positions beyond L", 36)):
        assert rows[name]["mean_norm"] == pytest.approx((WIDTH / 2) ** 0.5)
        assert rows[name]["count"] == count
    scaled = WIDTH**0.5 * model.get_parameter("embedding.weight").detach()
    assert rows["vocabulary"]["mean_norm"] == pytest.approx(float(scaled.norm(dim=1).mean()))
    text = scaled[random_tokens(2, 60).flatten()].norm(dim=1).mean()
    assert rows["text"]["mean_norm"] == pytest.approx(float(text))


@pytest.mark.parametrize("encoding", ["nope", "rope", "alibi", "randomized"])
def test_encodings_that_add_nothing_have_no_position_embeddings(
    make_model: MakeModel, encoding: str
) -> None:
    model = make_model(f"encoding={encoding}")
    assert position_embeddings(model.encoding, 30, model.device) is None


def test_covariance_equals_loops_over_channels() -> None:
    vectors = torch.randn(50, 5, generator=torch.Generator().manual_seed(2)).double()
    vectors[:, 1] += 2 * vectors[:, 0]
    columns = [[float(v) for v in column] for column in vectors.T]
    means = [sum(column) / 50 for column in columns]
    covariance = [
        [sum((a - m) * (b - n) for a, b in zip(x, y, strict=True)) / 49 for y, n in pairs]
        for pairs in [list(zip(columns, means, strict=True))]
        for x, m in pairs
    ]
    diagonal = [covariance[i][i] for i in range(5)]
    off_diagonal = [covariance[i][j] for i in range(5) for j in range(5) if i != j]
    row = embedding_statistics("correlated", vectors)
    assert row["diagonal_ratio"] == pytest.approx(
        (sum(diagonal) / 5) / (sum(map(abs, off_diagonal)) / 20)
    )
    diagonal_squares = sum(c**2 for c in diagonal)
    all_squares = diagonal_squares + sum(c**2 for c in off_diagonal)
    assert row["diagonal_fraction"] == pytest.approx(diagonal_squares / all_squares)


def test_independent_channels_have_about_the_expected_ratio() -> None:
    vectors = torch.randn(2000, 64, generator=torch.Generator().manual_seed(5)).double()
    row = embedding_statistics("independent", vectors)
    assert row["independent"] == pytest.approx(math.sqrt(1000 * math.pi))
    assert row["diagonal_ratio"] == pytest.approx(row["independent"], rel=0.05)


def test_a_pair_is_a_token_and_its_previous_occurrence() -> None:
    tokens = random_tokens(3, 40)
    pairs = set(zip(*(part.tolist() for part in identical_pairs(tokens)), strict=True))
    expected = set()
    for b, window in enumerate(tokens.tolist()):
        for j, token in enumerate(window):
            before = [i for i in range(j) if window[i] == token]
            if before:
                expected.add((b, before[-1], j))
    assert pairs == expected
    other = different_pairs(identical_pairs(tokens), tokens)
    assert len(other.window) > 10
    for b, i, j in zip(*(part.tolist() for part in other), strict=True):
        assert i < j and tokens[b, i] != tokens[b, j]


def test_hidden_states_are_those_of_the_model_and_their_distance_is_normalized(
    make_model: MakeModel,
) -> None:
    model, tokens = make_model("encoding=rope"), random_tokens(2, 20)
    states = hidden_states(model, tokens)
    assert states.shape == (3, 2, 20, WIDTH)
    assert torch.allclose(states[0], model.embedding(tokens) * WIDTH**0.5)
    assert torch.allclose(model.norm(states[-1]), model.hidden_states(tokens))
    pairs = identical_pairs(tokens)
    b, i, j = (int(part[4]) for part in pairs)
    one, other = states[2, b, i].tolist(), states[2, b, j].tolist()
    distance = math.dist(one, other) / math.hypot(*one, *other)
    assert float(normalized_distance(states, pairs)[2, 4]) == pytest.approx(distance)


@pytest.mark.parametrize("encoding", ["nope", "rope", "alibi", "t5"])
def test_relative_encodings_do_not_distinguish_equal_tokens(
    make_model: MakeModel, encoding: str
) -> None:
    model = make_model(f"encoding={encoding}")
    rows = sentence_rows(model, torch.tensor([4, 7, 9, 11, 7]))
    same = [row["distance"] for row in rows if row["text"] == "same token everywhere"]
    assert same == pytest.approx([0.0] * 3, abs=1e-9)
    sentence = [row["distance"] for row in rows if row["text"] == "sentence"]
    assert sentence[0] == 0 and min(sentence[1:]) > 1e-3  # the preceding tokens differ


def test_sinusoids_distinguish_equal_tokens_from_the_first_layer(make_model: MakeModel) -> None:
    model = make_model("encoding=sinusoidal")
    rows = sentence_rows(model, torch.tensor([4, 7, 9, 11, 7]))
    token = (WIDTH**0.5 * model.get_parameter("embedding.weight").detach()[7]).tolist()
    vectors = [
        [f(m * 10000 ** (-2 * i / WIDTH)) for i in range(16) for f in (math.sin, math.cos)]
        for m in (1, 4)
    ]
    one, other = ([t + c for t, c in zip(token, vector, strict=True)] for vector in vectors)
    expected = math.dist(one, other) / math.hypot(*one, *other)
    assert rows[0]["distance"] == pytest.approx(expected)
    assert {row["depth"]: row["distance"] for row in rows if row["text"] != "sentence"}[
        0
    ] == pytest.approx(expected)


def test_pairs_in_a_text_are_split_at_the_training_length(make_model: MakeModel) -> None:
    model, tokens = make_model("encoding=nope"), random_tokens(4, 60)
    rows = text_rows(model, tokens, TRAIN_LENGTH)
    later = identical_pairs(tokens).later
    by_depth = {(row["text"], row["depth"]): row for row in rows}
    assert by_depth["text within L", 0]["pairs"] == int((later < TRAIN_LENGTH).sum())
    assert by_depth["text beyond L", 0]["pairs"] == int((later >= TRAIN_LENGTH).sum())
    assert by_depth["text beyond L", 0]["distance"] == 0 < by_depth["text beyond L", 0]["different"]


def test_a_sentence_without_a_repetition_is_an_error(make_model: MakeModel) -> None:
    assert last_repeated_positions(torch.tensor([1, 2, 3, 2, 1])) == (0, 4)
    with pytest.raises(ConfigError, match="twice"):
        sentence_rows(make_model("encoding=nope"), torch.tensor([1, 2, 3]))
