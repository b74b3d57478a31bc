"""Shaw, Transformer-XL and wavelets, compared with loops over pairs and with golden values."""

import cmath
import math
from collections.abc import Callable
from typing import Literal

import pytest
import torch
from torch import Tensor, nn

from posenc.attention import reference
from posenc.attention.choice import kernel_function as attention_kernel
from posenc.encodings.base import Encoding, Geometry
from posenc.encodings.relative_scores import relative_scores
from posenc.encodings.shaw import Shaw
from posenc.encodings.transformer_xl import TransformerXL
from posenc.encodings.wavelet import Wavelet

Function = Literal["ricker", "haar", "gaussian", "morlet"]
RelativePosition = Literal["key_minus_query", "query_minus_key"]
SHAPES = [(6, 16, 5), (12, 64, 2), (20, 32, 3), (6, 256, 1)]  # heads, head dimension, layers
KEYS, QUERIES = 7, 4


def geometry(heads: int, width: int, layers: int = 1) -> Geometry:
    return Geometry(width=heads * width, heads=heads, layers=layers, train_length=32)


class Inputs:
    """Random queries, keys and positions; the queries belong to the last QUERIES of KEYS tokens."""

    def __init__(self, heads: int, width: int, pos: Tensor | None = None) -> None:
        generator = torch.Generator().manual_seed(heads * width)

        def randn(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=generator).double().requires_grad_()

        self.q, self.k = randn(2, heads, QUERIES, width), randn(2, heads, KEYS, width)
        self.x = randn(2, KEYS, heads * width)
        self.weights = randn(2, heads, QUERIES, KEYS).detach().softmax(dim=-1).requires_grad_()
        self.grad_out = randn(2, heads, QUERIES, KEYS).detach()
        self.pos = torch.tensor([0, 1, 5, 6, 40, 2_000, 100_000]) if pos is None else pos
        self.distance = (self.pos[-QUERIES:, None] - self.pos[None, :]).double()

    def scores(self, encoding: Encoding, dtype: torch.dtype = torch.float64) -> Tensor:
        pos_q = self.pos[-QUERIES:, None]
        x, q, k, distance = (t.to(dtype) for t in (self.x, self.q, self.k, self.distance))
        actual = encoding.content_bias(x, q, k, distance, pos_q)
        assert actual is not None and actual.dtype == dtype and actual.isfinite().all()
        return actual

    def pairs(self, score: Callable[[Tensor, Tensor, int], Tensor]) -> Tensor:
        """Return score(q [B, H, d], k [B, H, d], distance >= 0) of every pair, [B, H, R, K]."""
        rows = []
        for i in range(QUERIES):
            scores = [
                score(self.q[:, :, i], self.k[:, :, j], max(0, int(self.distance[i, j])))
                for j in range(KEYS)
            ]
            rows.append(torch.stack(scores, dim=-1))
        return torch.stack(rows, dim=-2)


def assert_equal_with_gradients(
    ours: Tensor, oracle: Tensor, grad_out: Tensor, inputs: list[Tensor]
) -> None:
    """Compare outputs and gradients to float64's precision."""
    torch.testing.assert_close(ours, oracle, rtol=1e-8, atol=1e-10)
    for gradient, expected in zip(
        torch.autograd.grad((ours * grad_out).sum(), inputs, retain_graph=True),
        torch.autograd.grad((oracle * grad_out).sum(), inputs, retain_graph=True),
        strict=True,
    ):
        torch.testing.assert_close(gradient, expected, rtol=1e-8, atol=1e-10)


def assert_close_in_float32(in_float32: Tensor, exact: Tensor) -> None:
    """Compare to within 1e-5 of the largest value."""
    assert (in_float32.double() - exact).abs().max() <= 1e-5 * exact.abs().max()


def row(table: nn.Parameter, layer: int, head: int, index: int) -> Tensor:
    weight = table[layer]
    return weight[head, index] if weight.ndim == 3 else weight[index]


@pytest.mark.parametrize(("heads", "width", "layers"), SHAPES)
@pytest.mark.parametrize("per_head", [False, True])
@pytest.mark.parametrize("max_distance", [1, 16, 50])
def test_shaw_keys_match_the_formula(
    heads: int, width: int, layers: int, per_head: bool, max_distance: int
) -> None:
    encoding = Shaw(
        geometry(heads, width, layers), max_relative_position=max_distance, per_head=per_head
    ).double()
    inputs, layer = Inputs(heads, width), layers - 1
    assert encoding.values is not None
    table = encoding.keys

    def score(q: Tensor, k: Tensor, distance: int) -> Tensor:
        """(q . (k + a) - q . k) / sqrt(d)"""
        index = min(distance, max_distance)
        a = torch.stack([row(table, layer, h, index) for h in range(heads)])
        return ((q * (k + a)).sum(dim=-1) - (q * k).sum(dim=-1)) / math.sqrt(width)

    ours = inputs.scores(encoding.at_layer(layer))
    assert_equal_with_gradients(ours, inputs.pairs(score), inputs.grad_out, [inputs.q, table])
    assert_close_in_float32(inputs.scores(encoding.at_layer(layer).float(), torch.float32), ours)


@pytest.mark.parametrize(("heads", "width", "layers"), SHAPES)
@pytest.mark.parametrize("per_head", [False, True])
@pytest.mark.parametrize("max_distance", [1, 16, 50])
def test_shaw_values_match_the_formula(
    heads: int, width: int, layers: int, per_head: bool, max_distance: int
) -> None:
    encoding = Shaw(
        geometry(heads, width, layers), max_relative_position=max_distance, per_head=per_head
    ).double()
    inputs, layer = Inputs(heads, width), layers - 1
    table = encoding.values
    assert table is not None
    ours = encoding.at_layer(layer).value_bias(inputs.weights, inputs.distance)
    assert ours is not None
    oracle = torch.zeros(2, heads, QUERIES, width, dtype=torch.float64)
    for i in range(QUERIES):
        for j in range(KEYS):
            index = min(max(0, int(inputs.distance[i, j])), max_distance)
            b = torch.stack([row(table, layer, h, index) for h in range(heads)])
            added = torch.zeros_like(oracle)
            added[:, :, i] = inputs.weights[:, :, i, j, None] * b
            oracle = oracle + added
    grad_out = torch.randn(oracle.shape, generator=torch.Generator().manual_seed(1)).double()
    assert_equal_with_gradients(ours, oracle, grad_out, [inputs.weights, table])
    in_float32 = (
        encoding.float().at_layer(layer).value_bias(inputs.weights.float(), inputs.distance.float())
    )
    assert in_float32 is not None and in_float32.dtype == torch.float32
    assert_close_in_float32(in_float32, ours)


def test_shaw_rows_are_those_of_the_papers_table_in_reverse_order() -> None:
    distance = torch.tensor([0.0, 1, 2, 15, 16, 17, 100])
    rows = 16 - Shaw(geometry(1, 4)).row(distance)
    assert rows.tolist() == [16, 15, 14, 1, 0, 0, 0]


def test_shaw_has_the_expected_shapes_initialization_and_errors() -> None:
    shared, per_head = (
        Shaw(geometry(4, 16, 3), max_relative_position=8),
        Shaw(geometry(4, 16, 3), per_head=True),
    )
    assert shared.keys.shape == (3, 9, 16) and per_head.keys.shape == (3, 4, 17, 16)
    assert shared.values is not None and not torch.equal(shared.keys, shared.values)
    limit = math.sqrt(6 / (2 * 16 + 1 + 16))
    assert 0.9 * limit < per_head.keys.abs().max() <= limit
    without = Shaw(geometry(4, 16), values=False)
    assert [name for name, _ in without.named_parameters()] == ["keys"]
    assert without.value_bias(torch.ones(1, 4, 2, 2), torch.zeros(2, 2)) is None
    with pytest.raises(ValueError, match="max_relative_position=0"):
        Shaw(geometry(4, 16), max_relative_position=0)


@pytest.mark.parametrize("kernel", [reference.attend, attention_kernel("auto")])
def test_shaw_attention_matches_equations_3_to_5(kernel: Callable[..., Tensor]) -> None:
    """The expected attention has keys and values of every pair, [T, T, d]."""
    encoding = Shaw(geometry(3, 8, 2), max_relative_position=2).double().at_layer(1)
    generator = torch.Generator().manual_seed(0)
    q, k, v = torch.randn(3, 2, 3, 6, 8, generator=generator).double().unbind(0)
    pos = torch.arange(6)
    out = kernel(encoding, torch.zeros(2, 6, 24).double(), q, k, v, pos)
    step = (pos[:, None] - pos[None, :]).clamp(0, 2)
    assert encoding.values is not None
    a, b = encoding.keys[1][step], encoding.values[1][step]
    e = torch.einsum("bhid,bhijd->bhij", q, k[:, :, None] + a) / math.sqrt(8)
    e = e.masked_fill(pos[None, :] > pos[:, None], -math.inf)
    expected = torch.einsum("bhij,bhijd->bhid", e.softmax(dim=-1), v[:, :, None] + b)
    torch.testing.assert_close(out, expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(
    ("heads", "width", "layers", "base", "clamp_len"),
    [(*SHAPES[0], 1e4, None), (*SHAPES[1], 10.0, 30), (*SHAPES[2], 1e7, 1)],
)
def test_transformer_xl_is_the_sum_of_its_four_terms(
    heads: int, width: int, layers: int, base: float, clamp_len: int | None
) -> None:
    model_geometry = geometry(heads, width, layers)
    encoding = TransformerXL(model_geometry, base=base, clamp_len=clamp_len).double()
    inputs, layer = Inputs(heads, width), layers - 1
    u, v, project = encoding.u, encoding.v, encoding.project

    def sinusoids(distance: int) -> Tensor:
        phasors = [
            cmath.exp(1j * distance * math.exp(-2 * k / model_geometry.width * math.log(base)))
            for k in range(model_geometry.width // 2)
        ]
        parts = [t.imag for t in phasors] + [t.real for t in phasors]
        return torch.tensor(parts, dtype=torch.float64)

    def key(distance: int) -> Tensor:
        """Return each head's rows of W times the sinusoids, [H, d]."""
        sinusoid = sinusoids(distance if clamp_len is None else min(distance, clamp_len))
        blocks = [project[layer, h * width : (h + 1) * width] for h in range(heads)]
        return torch.stack([block @ sinusoid for block in blocks])

    keys = {int(n): key(int(n)) for n in inputs.distance.clamp(min=0).unique()}

    def score(q: Tensor, k: Tensor, distance: int) -> Tensor:
        a, b = (q * k).sum(dim=-1), (q * keys[distance]).sum(dim=-1)
        c, d = (u * k).sum(dim=-1), (v * keys[distance]).sum(dim=-1)
        return (a + b + c + d) / math.sqrt(width) - a / math.sqrt(width)

    ours = inputs.scores(encoding.at_layer(layer))
    assert_equal_with_gradients(
        ours, inputs.pairs(score), inputs.grad_out, [inputs.q, inputs.k, u, v, project]
    )
    assert_close_in_float32(inputs.scores(encoding.at_layer(layer).float(), torch.float32), ours)


def test_transformer_xl_sinusoids_match_golden_values() -> None:
    encoding = TransformerXL(geometry(4, 16)).double()
    encoding.project.data.copy_(torch.eye(64)[None])
    distance = torch.tensor([0.0, 1, 10, 100]).double()
    projected = encoding.vectors(distance).transpose(0, 1).flatten(1).detach()  # heads concatenated
    assert projected[1, [0, 1, 31, 32, 33]].tolist() == pytest.approx(
        [0.8414709848, 0.6815613504, 0.0001333521428, 0.5403023059, 0.7317609758], rel=1e-8
    )
    assert projected[2, [0, 1, 32]].tolist() == pytest.approx(
        [-0.5440211109, 0.9376327441, -0.8390715291], rel=1e-8
    )
    assert (projected @ projected[0]).tolist() == pytest.approx(
        [32, 30.91683166, 21.05162882, 17.87466879], rel=1e-8
    )


def test_transformer_xl_has_the_expected_parameters_and_errors() -> None:
    encoding = TransformerXL(geometry(4, 16, 3))
    shapes = {name: tuple(p.shape) for name, p in encoding.named_parameters()}
    assert shapes == {"project": (3, 64, 64), "u": (4, 16), "v": (4, 16)}
    assert encoding.project.std().item() == pytest.approx(0.02, rel=0.05)
    assert encoding.at_layer(2).u is encoding.u
    with pytest.raises(ValueError, match=r"model\.width=9 must be even"):
        TransformerXL(Geometry(width=9, heads=3, layers=1, train_length=8))
    with pytest.raises(ValueError, match="base=0"):
        TransformerXL(geometry(4, 16), base=0)
    with pytest.raises(ValueError, match="clamp_len=0"):
        TransformerXL(geometry(4, 16), clamp_len=0)


def psi(function: Function, u: float, scale: float = 1.0, frequency: float = 1.0) -> float:
    if function == "haar":  # which half of the interval [-1, 0)
        return {1: 1.0, 2: -1.0}.get(math.ceil(-2 * u), 0.0)
    if function == "gaussian":
        return math.exp(-u * u)
    if function == "morlet":
        return math.exp(-u * u) * (cmath.exp(1j * u * scale * frequency)).real
    return math.exp(-u * u / 2) - u * u * math.exp(-u * u / 2)


@pytest.mark.parametrize(("heads", "width", "layers"), SHAPES)
@pytest.mark.parametrize("function", ["ricker", "haar", "gaussian", "morlet"])
@pytest.mark.parametrize("relative_position", ["key_minus_query", "query_minus_key"])
@pytest.mark.parametrize(("scales", "min_scale"), [(8, 1.0), (4, 4.0), (16, 0.5)])
def test_wavelets_match_the_formula_channel_by_channel(
    heads: int,
    width: int,
    layers: int,
    function: Function,
    relative_position: RelativePosition,
    scales: int,
    min_scale: float,
) -> None:
    encoding = Wavelet(
        geometry(heads, width, layers),
        function=function,
        scales=scales,
        min_scale=min_scale,
        relative_position=relative_position,
    )
    inputs = Inputs(heads, width, torch.tensor([0, 1, 5, 6, 40, 41, 100_000]))

    def score(q: Tensor, k: Tensor, distance: int) -> Tensor:
        t = -distance if relative_position == "key_minus_query" else distance
        p = [
            psi(function, (t - b) / (min_scale * 2**s), min_scale * 2**s)
            for s in range(scales)
            for b in range(width // scales)
        ]
        key = torch.tensor(p, dtype=torch.float64)
        return ((q * (k + key)).sum(dim=-1) - (q * k).sum(dim=-1)) / width**0.5

    ours = inputs.scores(encoding)
    assert_equal_with_gradients(ours, inputs.pairs(score), inputs.grad_out, [inputs.q])
    assert_close_in_float32(inputs.scores(encoding.bfloat16(), torch.float32), ours)


@pytest.mark.parametrize(
    ("relative_position", "function", "distances", "expected"),
    [
        ("key_minus_query", "ricker", [0, 1, 3, 8],
         [0.8010255794, 0.6618726769, 0.3302423259, -0.3460595823]),
        ("query_minus_key", "ricker", [0, 1, 3, 8],
         [0.8010255794, 0.9086561573, 1, 0.5012582021]),
        ("key_minus_query", "haar", range(7), [1, 1, -1, -1, -1, -1, 0]),
        ("query_minus_key", "haar", range(5), [1, 1, 1, 0, 0]),
    ],
)  # fmt: skip
def test_a_wavelet_channel_matches_golden_values(
    relative_position: RelativePosition,
    function: Function,
    distances: list[int],
    expected: list[float],
) -> None:
    encoding = Wavelet(geometry(1, 64), function=function, relative_position=relative_position)
    actual = encoding.vectors(torch.tensor(distances).double())[:, 3 * 8 + 3]  # a = 2^3, b = 3
    assert actual.tolist() == pytest.approx(expected, rel=1e-8)


@pytest.mark.parametrize(
    ("relative_position", "expected"),
    [
        ("key_minus_query", [39.093376961, 34.223732692, 19.299682614, -1.8996179674]),
        ("query_minus_key", [39.093376961, 42.301576124, 28.344512597, -1.3540861311]),
    ],
)
def test_wavelet_sums_match_golden_values(
    relative_position: RelativePosition, expected: list[float]
) -> None:
    distance = torch.tensor([0.0, 1, 10, 100]).double()
    actual = (
        Wavelet(geometry(1, 64), relative_position=relative_position).vectors(distance).sum(dim=-1)
    )
    assert actual.tolist() == pytest.approx(expected, rel=1e-8)


def test_the_scale_does_not_affect_the_cosine_of_morlet_wavelets() -> None:
    encoding = Wavelet(geometry(1, 4), function="morlet", scales=2, frequency=0.7)
    actual = encoding.vectors(torch.tensor([3.0], dtype=torch.float64))[0]  # t = -3
    expected = [
        math.exp(-(u**2)) * math.cos(0.7 * shifted)
        for shifted, u in ((3, 3), (4, 4), (3, 3 / 2), (4, 4 / 2))
    ]
    assert actual.tolist() == pytest.approx(expected, rel=1e-12)
    for function, frequency in (("ricker", 1.0), ("morlet", 0.0)):
        with pytest.raises(ValueError, match=f"frequency={frequency}"):
            Wavelet(geometry(1, 8), function=function, frequency=frequency)


def test_ricker_wavelets_match_golden_values() -> None:
    encoding = Wavelet(
        geometry(1, 1), scales=1, relative_position="query_minus_key"
    )  # a = 1, b = 0
    u = torch.tensor([0, 0.5, 1, 1.5, 2, 3, math.sqrt(3)], dtype=torch.float64)
    assert encoding.vectors(u)[:, 0].tolist() == pytest.approx(
        [
            1,
            0.661872676938,
            0,
            -0.405815584198,
            -0.40600584971,
            -0.0888719723059,
            -0.4462603203,
        ],
        rel=1e-8,
        abs=1e-12,
    )


def test_haar_wavelets_have_a_limited_range_in_both_readings_of_the_paper() -> None:
    """At the paper's width of 128 the literal reading limits Haar wavelets to distances 0 to 14."""
    distance = torch.arange(300).double()
    for relative_position, furthest in (("query_minus_key", 14), ("key_minus_query", 128)):
        actual = Wavelet(
            geometry(1, 128), function="haar", relative_position=relative_position
        ).vectors(distance)
        assert actual.abs().sum(dim=-1).nonzero().max() == furthest


def test_invalid_wavelet_parameters_are_rejected() -> None:
    with pytest.raises(ValueError, match="scales=8 must divide the head dimension of 12"):
        Wavelet(geometry(2, 12))
    with pytest.raises(ValueError, match=r"min_scale=0"):
        Wavelet(geometry(2, 16), min_scale=0)


@pytest.mark.parametrize("make", [Shaw, TransformerXL, Wavelet])
def test_half_precision_inputs_are_upcast(make: type[Encoding]) -> None:
    torch.manual_seed(0)
    encoding, inputs = make(geometry(6, 16)), Inputs(6, 16)
    x, q, k = (t.detach().bfloat16() for t in (inputs.x, inputs.q, inputs.k))
    distance, pos_q = inputs.distance.float(), inputs.pos[-QUERIES:, None]
    actual = encoding.content_bias(x, q, k, distance, pos_q)
    expected = encoding.content_bias(x.float(), q.float(), k.float(), distance, pos_q)
    assert actual is not None and expected is not None and actual.dtype == torch.float32
    assert torch.equal(actual, expected)


def test_relative_scores_equal_products_with_one_vector_per_pair() -> None:
    """Distances of coordinates and of positions; each distinct distance needs one vector."""
    generator = torch.Generator().manual_seed(2)
    points = torch.randint(0, 4, (2, 9, 2), generator=generator).double()
    q = torch.randn(2, 3, 9, 5, generator=generator).double()
    distance = torch.cdist(points, points)[:, None]

    def vectors(distances: Tensor) -> Tensor:
        return torch.stack(
            [distances.cos(), distances.sin(), distances, distances**2, distances.exp()], dim=-1
        )

    counts: list[int] = []

    def counting_vectors(distances: Tensor) -> Tensor:
        counts.append(len(distances))
        return vectors(distances)

    expected = (q[..., None, :] * vectors(distance)).sum(dim=-1)
    torch.testing.assert_close(relative_scores(q, distance, counting_vectors), expected)
    assert counts[0] < 20
    signed = torch.arange(9.0).double()[:, None] - torch.arange(9.0).double()
    expected = (q[..., None, :] * vectors(signed.clamp(min=0))).sum(dim=-1)
    torch.testing.assert_close(relative_scores(q, signed, counting_vectors), expected)
    assert counts[1] == 9


def test_shaw_values_of_20_000_tokens_are_precise_in_float32() -> None:
    """All but the nearest tokens share a row; their weights sum to nearly 1."""
    encoding = Shaw(geometry(1, 16)).double()
    assert encoding.values is not None
    distance = torch.arange(20_000.0).flip(0)[None].double()
    weights = torch.rand(1, 1, 1, 20_000, generator=torch.Generator().manual_seed(0)).double()
    weights = weights / weights.sum()
    exact = encoding.value_bias(weights, distance)
    near = weights[..., -16:].flip(-1)
    row_weights = torch.cat([near, 1 - near.sum(dim=-1, keepdim=True)], dim=-1)
    assert exact is not None
    torch.testing.assert_close(exact, row_weights @ encoding.values[0])
    in_float32 = encoding.float().value_bias(weights.float(), distance.float())
    assert in_float32 is not None
    torch.testing.assert_close(in_float32.double(), exact, rtol=1e-6, atol=1e-7)
