"""LieRE and ComRoPE, compared with SciPy's matrix exponentials block by block."""

import math
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import pytest
import torch
from scipy.linalg import block_diag, expm
from torch import Tensor

from posenc.encodings.base import Encoding, Geometry
from posenc.encodings.comrope import ComRope
from posenc.encodings.liere import LieRE

LAYER, HEADS, LENGTH, TRAIN_LENGTH = 1, 2, 9, 7
Generators = Callable[[int, int], list[list[np.ndarray]]]
"""The skew-symmetric matrices of a layer and head: one list of blocks for each axis."""


def build(make: Callable[..., Encoding], width: int, **kwargs: Any) -> Any:
    torch.manual_seed(5)
    geometry = Geometry(HEADS * width, HEADS, layers=2, train_length=TRAIN_LENGTH)
    return make(geometry, **kwargs).double()


def inputs(width: int, axes: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    q, k = torch.randn(2, 2, HEADS, LENGTH, width, generator=generator).double().unbind(0)
    pos = 12 * torch.rand(2, LENGTH, axes, generator=generator).double() - 3
    return torch.zeros(2, LENGTH, HEADS * width), q, k, pos


def liere_generators(encoding: LieRE, size: int) -> Generators:
    def generators(layer: int, head: int) -> list[list[np.ndarray]]:
        axes = []
        for block_entries in encoding.upper[layer, :, head].tolist():
            blocks = []
            for entries in block_entries:
                upper = np.zeros((size, size))
                upper[np.triu_indices(size, 1)] = entries
                blocks.append(upper - upper.T)
            axes.append(blocks)
        return axes

    return generators


def comrope_generators(encoding: ComRope, form: str) -> Generators:
    def generators(layer: int, head: int) -> list[list[np.ndarray]]:
        matrices = encoding.matrices[layer, head].detach().numpy()
        skew = [matrix - matrix.T for matrix in matrices]
        theta = encoding.theta[layer].detach().numpy()
        return [
            [(theta[a, n] if form == "ld" else n % encoding.axes == a) * block
             for n, block in enumerate(skew)]
            for a in range(encoding.axes)
        ]  # fmt: skip

    return generators


def assert_rotated_by_exponentials(
    encoding: Encoding, generators: Generators, width: int, axes: int, extent: float
) -> None:
    x, q, k, pos = inputs(width, axes)
    text_pos = torch.arange(LENGTH) + 5
    for points in (pos, text_pos):
        with torch.no_grad():
            rotated = encoding.at_layer(LAYER).rotate(x, q, k, points)
            in_float32 = encoding.at_layer(LAYER).rotate(x, q.float(), k.float(), points)
        for h in range(HEADS):
            blocks_of_axes = generators(LAYER, h)
            for t in range(LENGTH):
                point = points[1, t].tolist() if points.ndim > 1 else [points[t].item()] * axes
                exponents = [
                    sum(p / extent * block for p, block in zip(point, blocks, strict=True))
                    for blocks in zip(*blocks_of_axes, strict=True)
                ]
                rotation = block_diag(*(expm(exponent) for exponent in exponents))
                for before, after, after_float32 in zip((q, k), rotated, in_float32, strict=True):
                    vector = before[1, h, t].numpy().copy()
                    vector[: len(rotation)] = rotation @ vector[: len(rotation)]
                    np.testing.assert_allclose(after[1, h, t].numpy(), vector, rtol=0, atol=1e-10)
                    np.testing.assert_allclose(
                        after_float32[1, h, t].numpy(), vector, rtol=0, atol=5e-6
                    )


@pytest.mark.parametrize(
    ("width", "axes", "size", "extent"),
    [(8, 2, 8, 4.0), (8, 1, 4, None), (11, 3, 5, None), (6, 2, 2, 0.5), (9, 2, 9, 14.0)],
)
def test_liere_rotates_blocks_by_exponentials(
    width: int, axes: int, size: int, extent: float | None
) -> None:
    encoding = build(LieRE, width, axes=axes, block_size=size, extent=extent)
    generators = liere_generators(encoding, size)
    assert_rotated_by_exponentials(encoding, generators, width, axes, extent or TRAIN_LENGTH)


@pytest.mark.parametrize("form", ["ld", "ap"])
@pytest.mark.parametrize(
    ("width", "axes", "size", "extent"),
    [(8, 2, 4, 4.0), (8, 1, 2, None), (15, 3, 5, None), (6, 2, 3, 0.5), (16, 3, 4, 14.0)],
)
def test_comrope_rotates_blocks_by_exponentials(
    width: int, axes: int, size: int, extent: float | None, form: Literal["ld", "ap"]
) -> None:
    encoding = build(ComRope, width, form=form, axes=axes, block_size=size, extent=extent)
    generators = comrope_generators(encoding, form)
    assert_rotated_by_exponentials(encoding, generators, width, axes, extent or TRAIN_LENGTH)


@pytest.mark.parametrize("form", ["ld", "ap"])
def test_only_the_matrices_of_comrope_commute(form: str) -> None:
    """Scores of ComRoPE depend only on differences of coordinates; those of LieRE do not."""
    x, q, k, pos = inputs(8, 2)
    shift = torch.tensor([3.0, -1.5])

    def change(encoding: Encoding) -> float:
        with torch.no_grad():
            scores = [
                a @ b.mT for a, b in (encoding.rotate(x, q, k, p) for p in (pos, pos + shift))
            ]
        return (scores[0] - scores[1]).abs().max().item()

    assert change(build(ComRope, 8, form=form, block_size=4)) < 1e-10
    assert change(build(LieRE, 8, block_size=8)) > 0.1


@pytest.mark.parametrize("make", [LieRE, ComRope])
def test_gradients_of_all_matrices_pass_gradcheck(make: Callable[..., Encoding]) -> None:
    encoding = build(make, 8, block_size=4)
    x, q, k, pos = inputs(8, 2)
    leaves = list(encoding.parameters())
    for points in (pos[:1, :2], torch.arange(2)):

        def rotate(*_: Tensor, points: Tensor = points) -> tuple[Tensor, Tensor]:
            return encoding.rotate(x[:1, :2], q[:1, :, :2], k[:1, :, :2], points)

        assert torch.autograd.gradcheck(rotate, leaves, fast_mode=True)


def test_initial_values_are_those_of_the_authors() -> None:
    liere, comrope = build(LieRE, 32), build(ComRope, 32, init_std=0.5)
    assert 0 <= liere.upper.min() < 0.2 and 2 * math.pi - 0.2 < liere.upper.max() <= 2 * math.pi
    assert comrope.matrices.std().item() == pytest.approx(0.5, rel=0.1)
    assert comrope.theta.std().item() == pytest.approx(1, rel=0.3)


@pytest.mark.parametrize(
    ("make", "kwargs", "message"),
    [
        (LieRE, {"axes": 0}, "axes=0"),
        (LieRE, {"block_size": 9}, "block_size=9"),
        (LieRE, {"block_size": 1}, "block_size=1"),
        (LieRE, {"extent": 0.0}, "extent=0.0"),
        (ComRope, {"block_size": 3}, "block_size=3 must divide"),
        (ComRope, {"form": "ap", "axes": 3}, "at least 3 blocks"),
        (ComRope, {"init_std": 0.0}, "init_std=0.0"),
    ],
)
def test_invalid_parameters_are_rejected(
    make: Callable[..., Encoding], kwargs: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        build(make, 8, **kwargs)
