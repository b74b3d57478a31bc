"""Structural encodings against exact fractions, counted walks and the path's closed form."""

import math
from fractions import Fraction

import pytest
import torch
from torch import Tensor

from posenc.encodings.base import Geometry
from posenc.encodings.structure import Degree, RandomWalk, degrees, return_probabilities

CPU = torch.device("cpu")


def geometry(width: int = 24, heads: int = 4) -> Geometry:
    return Geometry(width=width, heads=heads, layers=1, train_length=32)


def graphs(batch: int, nodes: int, chance: float, seed: int) -> Tensor:
    """Undirected graphs [B, T, T] without loops; the last node has no edges."""
    drawn = torch.rand(batch, nodes, nodes, generator=torch.Generator().manual_seed(seed)) < chance
    edges = drawn.triu(1)
    edges[:, -1] = edges[:, :, -1] = False
    return (edges | edges.mT).to(torch.float32)


def path(length: int) -> Tensor:
    edges = torch.zeros(1, length, length)
    for node in range(length - 1):
        edges[0, node, node + 1] = edges[0, node + 1, node] = 1
    return edges


def walked(adjacency: list[list[float]], start: int, steps: int) -> list[Fraction]:
    """Where a walk from `start` is back, by passing exact shares of it from node to node."""
    nodes = range(len(adjacency))
    share = [Fraction(int(node == start)) for node in nodes]
    back = []
    for _ in range(steps):
        passed = [Fraction(0) for _ in nodes]
        for here in nodes:
            out = Fraction(sum(adjacency[here]))
            for there in nodes:
                if adjacency[here][there]:
                    passed[there] += share[here] * Fraction(adjacency[here][there]) / out
        share = passed
        back.append(share[start])
    return back


@pytest.mark.parametrize(("nodes", "steps", "seed"), [(2, 1, 0), (7, 5, 1), (9, 8, 2)])
def test_return_probabilities_are_those_of_exact_walks(nodes: int, steps: int, seed: int) -> None:
    batch = graphs(2, nodes, 0.5, seed)
    found = return_probabilities(batch, steps)
    assert found.shape == (2, nodes, steps) and found.dtype == torch.float64
    assert torch.equal(found[:, -1], torch.zeros(2, steps, dtype=torch.float64))
    for graph, rows in zip(batch.tolist(), found.tolist(), strict=True):
        for node in range(nodes):
            exact = [float(share) for share in walked(graph, node, steps)]
            assert rows[node] == pytest.approx(exact, rel=1e-12, abs=1e-15)


def test_return_probabilities_of_weighted_edges() -> None:
    graph = torch.tensor([[[0, 0.25, 0], [0.25, 0, 0.5], [0, 0.5, 0]]])
    wanted = [walked(graph[0].tolist(), node, 4) for node in range(3)]
    found = return_probabilities(graph, 4)[0].tolist()
    for row, exact in zip(found, wanted, strict=True):
        assert row == pytest.approx([float(share) for share in exact], rel=1e-12)


def test_return_probabilities_of_known_graphs() -> None:
    complete = torch.ones(1, 5, 5) - torch.eye(5)  # back after k: (1 + 4 (-1/4)^k) / 5
    wanted = [(1 + 4 * (-0.25) ** k) / 5 for k in range(1, 7)]
    assert return_probabilities(complete, 6)[0, 2].tolist() == pytest.approx(wanted, abs=1e-15)
    ring = path(40)
    ring[0, 0, 39] = ring[0, 39, 0] = 1
    central = [math.comb(k, k // 2) / 2**k if k % 2 == 0 else 0 for k in range(1, 17)]
    assert return_probabilities(ring, 16)[0, 0].tolist() == pytest.approx(central, abs=1e-15)


def reflected(length: int, node: int, step: int) -> float:
    """The walk on a path as one on all whole numbers, folded at both ends: its images added up."""
    if length == 1:
        return 0.0
    period = 2 * (length - 1)
    images = {(sign * node - node) % period for sign in (1, -1)}
    total = 0
    for place in range(-step, step + 1):
        if place % period in images and (place + step) % 2 == 0:
            total += math.comb(step, (place + step) // 2)
    return total / 2**step


@pytest.mark.parametrize("steps", [1, 2, 3, 8, 16])
@pytest.mark.parametrize("length", [1, 2, 3, 5, 16, 17, 31, 32, 33, 34, 35, 80])
def test_a_text_is_a_path_whatever_its_length(length: int, steps: int) -> None:
    found = RandomWalk(geometry(), steps=steps).positions(length, CPU)
    assert found.shape == (1, length, steps) and found.dtype == torch.float64
    torch.testing.assert_close(
        found, return_probabilities(path(length), steps), rtol=1e-13, atol=1e-16
    )
    folded = [[reflected(length, n, k) for k in range(1, steps + 1)] for n in range(length)]
    torch.testing.assert_close(found[0], torch.tensor(folded, dtype=torch.float64))


def test_a_long_text_differs_at_its_ends_alone() -> None:
    found = RandomWalk(geometry(), steps=16).positions(100_000, CPU)[0]
    central = [math.comb(k, k // 2) / 2**k if k % 2 == 0 else 0.0 for k in range(1, 17)]
    middle = torch.tensor(central, dtype=torch.float64)
    torch.testing.assert_close(found[9:-9], middle.expand(99_982, 16), rtol=1e-13, atol=1e-16)
    assert not torch.allclose(found[8], middle) and torch.equal(found, found.flip(0))
    for node in (0, 1, 7, 8):
        wanted = [reflected(100_000, node, k) for k in range(1, 17)]
        assert found[node].tolist() == pytest.approx(wanted, abs=1e-15)


@pytest.mark.parametrize("length", [1, 2, 3, 50])
def test_degrees_of_graphs_and_of_a_text(length: int) -> None:
    graph = graphs(3, 8, 0.4, seed=length)
    found = degrees(graph)
    assert found.shape == (3, 8, 1) and found.dtype == torch.float64
    for edges, row in zip(graph.tolist(), found.tolist(), strict=True):
        assert [r[0] for r in row] == [sum(1 for edge in node if edge) for node in edges]
    text = Degree(geometry()).positions(length, CPU)
    assert text.dtype == torch.float64
    assert torch.equal(text, degrees(path(length)))


@pytest.mark.parametrize(("width", "heads", "steps"), [(24, 6, 3), (96, 12, 20), (320, 20, 16)])
def test_random_walk_adds_a_linear_map(width: int, heads: int, steps: int) -> None:
    torch.manual_seed(steps)
    encoding = RandomWalk(geometry(width, heads), steps=steps).double()
    weight, bias = encoding.project.weight, encoding.project.bias
    pos = return_probabilities(graphs(2, 6, 0.6, seed=4), steps)
    x = torch.randn(2, 6, width, dtype=torch.float64)
    out = encoding.embed(x, pos)
    wanted = x + bias
    for k in range(steps):
        wanted = wanted + pos[:, :, k, None] * weight[:, k]
    torch.testing.assert_close(out, wanted, rtol=1e-12, atol=1e-12)
    pull = torch.randn_like(out)
    ours = torch.autograd.grad((out * pull).sum(), [weight, bias])
    oracle = torch.autograd.grad((wanted * pull).sum(), [weight, bias])
    torch.testing.assert_close(ours, oracle, rtol=1e-11, atol=1e-12)
    single = encoding.float().embed(x.float(), pos)
    torch.testing.assert_close(single.double(), wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("width", "heads", "rows"), [(24, 6, 512), (96, 12, 3), (320, 20, 5)])
def test_degree_adds_a_row_of_its_table(width: int, heads: int, rows: int) -> None:
    torch.manual_seed(rows)
    encoding = Degree(geometry(width, heads), rows=rows).double()
    graph = graphs(2, 9, 0.6, seed=3)
    x = torch.randn(2, 9, width, dtype=torch.float64)
    out, pull = encoding.embed(x, degrees(graph)), torch.randn(2, 9, width, dtype=torch.float64)
    (ours,) = torch.autograd.grad((out * pull).sum(), encoding.rows.weight)
    gradient = torch.zeros(rows, width, dtype=torch.float64)
    for b, edges in enumerate(graph.tolist()):
        for i, node in enumerate(edges):
            row = min(int(sum(node)), rows - 1)
            torch.testing.assert_close(out[b, i], x[b, i] + encoding.rows.weight[:, row])
            gradient[row] += pull[b, i]
    torch.testing.assert_close(ours, gradient.T)


def test_a_larger_table_tells_apart_what_a_smaller_one_does_not() -> None:
    star = torch.zeros(1, 7, 7)  # degrees 6, 4 and 2 or 1
    star[0, 0, 1:] = star[0, 1:, 0] = 1
    star[0, 1, 2:5] = star[0, 2:5, 1] = 1
    x = torch.zeros(1, 7, 24)
    small, large = Degree(geometry(), rows=5), Degree(geometry(), rows=7)
    six, four = small.embed(x, degrees(star))[0, :2]
    assert torch.equal(six, four)
    six, four = large.embed(x, degrees(star))[0, :2]
    assert not torch.allclose(six, four)


def test_random_walk_is_as_exact_under_autocast() -> None:
    encoding = RandomWalk(geometry())
    x, pos = torch.zeros(1, 20, 24), encoding.positions(20, CPU)
    plain = encoding.embed(x, pos)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(encoding.embed(x, pos), plain)
    assert encoding.embed(x.bfloat16(), pos).dtype == torch.bfloat16


@pytest.mark.parametrize("shape", [(9,), (1, 9, 4), (9, 16)])
def test_what_is_no_coordinates_of_its_kind_is_refused(shape: tuple[int, ...]) -> None:
    x, pos = torch.zeros(1, 9, 24), torch.zeros(shape)
    with pytest.raises(ValueError, match=r"random_walk takes coordinates \[B, T, 16\] of nodes"):
        RandomWalk(geometry()).embed(x, pos)
    with pytest.raises(ValueError, match=r"degree takes coordinates \[B, T, 1\] of nodes"):
        Degree(geometry()).embed(x, pos)


def test_knobs_out_of_range_are_refused() -> None:
    with pytest.raises(ValueError, match="steps=0"):
        RandomWalk(geometry(), steps=0)
    with pytest.raises(ValueError, match="rows=1"):
        Degree(geometry(), rows=1)
    with pytest.raises(ValueError, match=r"std=-0\.1"):
        Degree(geometry(), std=-0.1)
