"""Encodings of graphs, compared with exact fractions, counted walks and closed forms."""

import math
from fractions import Fraction

import pytest
import torch
from torch import Tensor

from posenc.encodings.base import Geometry
from posenc.encodings.graph import Degree, RandomWalk, degrees, return_probabilities

CPU = torch.device("cpu")


def geometry(width: int = 24, heads: int = 4) -> Geometry:
    return Geometry(width=width, heads=heads, layers=1, train_length=32)


def graphs(batch: int, nodes: int, probability: float, seed: int) -> Tensor:
    """Return undirected graphs [B, T, T] without self-loops; the last node has no edges."""
    edges = (
        torch.rand(batch, nodes, nodes, generator=torch.Generator().manual_seed(seed)) < probability
    )
    edges = edges.triu(1)
    edges[:, -1] = edges[:, :, -1] = False
    return (edges | edges.mT).to(torch.float32)


def path(length: int) -> Tensor:
    edges = torch.zeros(1, length, length)
    for node in range(length - 1):
        edges[0, node, node + 1] = edges[0, node + 1, node] = 1
    return edges


def exact_return_probabilities(
    adjacency: list[list[float]], start: int, walk_length: int
) -> list[Fraction]:
    """Return the probabilities of being back at `start`, as exact fractions."""
    nodes = range(len(adjacency))
    mass = [Fraction(int(node == start)) for node in nodes]
    returned = []
    for _ in range(walk_length):
        next_mass = [Fraction(0) for _ in nodes]
        for source in nodes:
            degree = Fraction(sum(adjacency[source]))
            for target in nodes:
                if adjacency[source][target]:
                    next_mass[target] += mass[source] * Fraction(adjacency[source][target]) / degree
        mass = next_mass
        returned.append(mass[start])
    return returned


@pytest.mark.parametrize(("nodes", "walk_length", "seed"), [(2, 1, 0), (7, 5, 1), (9, 8, 2)])
def test_return_probabilities_match_exact_fractions(
    nodes: int, walk_length: int, seed: int
) -> None:
    batch = graphs(2, nodes, 0.5, seed)
    actual = return_probabilities(batch, walk_length)
    assert actual.shape == (2, nodes, walk_length) and actual.dtype == torch.float64
    assert torch.equal(actual[:, -1], torch.zeros(2, walk_length, dtype=torch.float64))
    for graph, rows in zip(batch.tolist(), actual.tolist(), strict=True):
        for node in range(nodes):
            exact = [float(mass) for mass in exact_return_probabilities(graph, node, walk_length)]
            assert rows[node] == pytest.approx(exact, rel=1e-12, abs=1e-15)


def test_return_probabilities_of_weighted_edges_match_exact_fractions() -> None:
    graph = torch.tensor([[[0, 0.25, 0], [0.25, 0, 0.5], [0, 0.5, 0]]])
    expected = [exact_return_probabilities(graph[0].tolist(), node, 4) for node in range(3)]
    actual = return_probabilities(graph, 4)[0].tolist()
    for row, exact in zip(actual, expected, strict=True):
        assert row == pytest.approx([float(mass) for mass in exact], rel=1e-12)


def test_return_probabilities_of_known_graphs_match_closed_forms() -> None:
    complete = torch.ones(1, 5, 5) - torch.eye(5)  # after k steps: (1 + 4 (-1/4)^k) / 5
    expected = [(1 + 4 * (-0.25) ** k) / 5 for k in range(1, 7)]
    assert return_probabilities(complete, 6)[0, 2].tolist() == pytest.approx(expected, abs=1e-15)
    ring = path(40)
    ring[0, 0, 39] = ring[0, 39, 0] = 1
    central = [math.comb(k, k // 2) / 2**k if k % 2 == 0 else 0 for k in range(1, 17)]
    assert return_probabilities(ring, 16)[0, 0].tolist() == pytest.approx(central, abs=1e-15)


def folded_return_probability(length: int, node: int, step: int) -> float:
    """Compute the return probability on a path by folding a walk on the integers at both ends."""
    if length == 1:
        return 0.0
    period = 2 * (length - 1)
    images = {(sign * node - node) % period for sign in (1, -1)}
    total = 0
    for node_reached in range(-step, step + 1):
        if node_reached % period in images and (node_reached + step) % 2 == 0:
            total += math.comb(step, (node_reached + step) // 2)
    return total / 2**step


@pytest.mark.parametrize("walk_length", [1, 2, 3, 8, 16])
@pytest.mark.parametrize("length", [1, 2, 3, 5, 16, 17, 31, 32, 33, 34, 35, 80])
def test_a_sequence_of_any_length_is_a_path(length: int, walk_length: int) -> None:
    actual = RandomWalk(geometry(), walk_length=walk_length).positions(length, CPU)
    assert actual.shape == (1, length, walk_length) and actual.dtype == torch.float64
    torch.testing.assert_close(
        actual, return_probabilities(path(length), walk_length), rtol=1e-13, atol=1e-16
    )
    folded = [
        [folded_return_probability(length, n, k) for k in range(1, walk_length + 1)]
        for n in range(length)
    ]
    torch.testing.assert_close(actual[0], torch.tensor(folded, dtype=torch.float64))


def test_a_long_sequence_differs_only_at_its_ends() -> None:
    actual = RandomWalk(geometry(), walk_length=16).positions(100_000, CPU)[0]
    central = [math.comb(k, k // 2) / 2**k if k % 2 == 0 else 0.0 for k in range(1, 17)]
    middle = torch.tensor(central, dtype=torch.float64)
    torch.testing.assert_close(actual[9:-9], middle.expand(99_982, 16), rtol=1e-13, atol=1e-16)
    assert not torch.allclose(actual[8], middle) and torch.equal(actual, actual.flip(0))
    for node in (0, 1, 7, 8):
        expected = [folded_return_probability(100_000, node, k) for k in range(1, 17)]
        assert actual[node].tolist() == pytest.approx(expected, abs=1e-15)


@pytest.mark.parametrize("length", [1, 2, 3, 50])
def test_degrees_count_the_edges_of_graphs_and_of_a_sequence(length: int) -> None:
    graph = graphs(3, 8, 0.4, seed=length)
    actual = degrees(graph)
    assert actual.shape == (3, 8, 1) and actual.dtype == torch.float64
    for edges, row in zip(graph.tolist(), actual.tolist(), strict=True):
        assert [r[0] for r in row] == [sum(1 for edge in node if edge) for node in edges]
    sequence = Degree(geometry()).positions(length, CPU)
    assert sequence.dtype == torch.float64
    assert torch.equal(sequence, degrees(path(length)))


@pytest.mark.parametrize(
    ("width", "heads", "walk_length"), [(24, 6, 3), (96, 12, 20), (320, 20, 16)]
)
def test_random_walk_adds_a_linear_map(width: int, heads: int, walk_length: int) -> None:
    torch.manual_seed(walk_length)
    encoding = RandomWalk(geometry(width, heads), walk_length=walk_length).double()
    weight, bias = encoding.project.weight, encoding.project.bias
    pos = return_probabilities(graphs(2, 6, 0.6, seed=4), walk_length)
    x = torch.randn(2, 6, width, dtype=torch.float64)
    out = encoding.embed(x, pos)
    expected = x + bias
    for k in range(walk_length):
        expected = expected + pos[:, :, k, None] * weight[:, k]
    torch.testing.assert_close(out, expected, rtol=1e-12, atol=1e-12)
    grad_out = torch.randn_like(out)
    ours = torch.autograd.grad((out * grad_out).sum(), [weight, bias])
    oracle = torch.autograd.grad((expected * grad_out).sum(), [weight, bias])
    torch.testing.assert_close(ours, oracle, rtol=1e-11, atol=1e-12)
    in_float32 = encoding.float().embed(x.float(), pos)
    torch.testing.assert_close(in_float32.double(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("width", "heads", "num_degrees"), [(24, 6, 512), (96, 12, 3), (320, 20, 5)]
)
def test_degree_adds_a_row_of_the_table(width: int, heads: int, num_degrees: int) -> None:
    torch.manual_seed(num_degrees)
    encoding = Degree(geometry(width, heads), num_degrees=num_degrees).double()
    graph = graphs(2, 9, 0.6, seed=3)
    x = torch.randn(2, 9, width, dtype=torch.float64)
    out, grad_out = encoding.embed(x, degrees(graph)), torch.randn(2, 9, width, dtype=torch.float64)
    (ours,) = torch.autograd.grad((out * grad_out).sum(), encoding.rows.weight)
    gradient = torch.zeros(num_degrees, width, dtype=torch.float64)
    for b, edges in enumerate(graph.tolist()):
        for i, node in enumerate(edges):
            row = min(int(sum(node)), num_degrees - 1)
            torch.testing.assert_close(out[b, i], x[b, i] + encoding.rows.weight[:, row])
            gradient[row] += grad_out[b, i]
    torch.testing.assert_close(ours, gradient.T)


def test_a_larger_table_distinguishes_higher_degrees() -> None:
    graph = torch.zeros(1, 7, 7)  # degrees 6, 4 and 2 or 1
    graph[0, 0, 1:] = graph[0, 1:, 0] = 1
    graph[0, 1, 2:5] = graph[0, 2:5, 1] = 1
    x = torch.zeros(1, 7, 24)
    small, large = Degree(geometry(), num_degrees=5), Degree(geometry(), num_degrees=7)
    six, four = small.embed(x, degrees(graph))[0, :2]
    assert torch.equal(six, four)
    six, four = large.embed(x, degrees(graph))[0, :2]
    assert not torch.allclose(six, four)


def test_random_walk_is_equally_exact_under_autocast() -> None:
    encoding = RandomWalk(geometry())
    x, pos = torch.zeros(1, 20, 24), encoding.positions(20, CPU)
    plain = encoding.embed(x, pos)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(encoding.embed(x, pos), plain)
    assert encoding.embed(x.bfloat16(), pos).dtype == torch.bfloat16


@pytest.mark.parametrize("shape", [(9,), (1, 9, 4), (9, 16)])
def test_coordinates_of_the_wrong_shape_are_rejected(shape: tuple[int, ...]) -> None:
    x, pos = torch.zeros(1, 9, 24), torch.zeros(shape)
    with pytest.raises(ValueError, match=r"random_walk takes coordinates \[B, T, 16\] of nodes"):
        RandomWalk(geometry()).embed(x, pos)
    with pytest.raises(ValueError, match=r"degree takes coordinates \[B, T, 1\] of nodes"):
        Degree(geometry()).embed(x, pos)


def test_invalid_parameters_are_rejected() -> None:
    with pytest.raises(ValueError, match="walk_length=0"):
        RandomWalk(geometry(), walk_length=0)
    with pytest.raises(ValueError, match="num_degrees=1"):
        Degree(geometry(), num_degrees=1)
    with pytest.raises(ValueError, match=r"std=-0\.1"):
        Degree(geometry(), std=-0.1)
