"""FIRE, functional interpolation for relative positions (Li et al. 2024, arXiv:2310.04418).

    score_h(i, j) += f_h(psi(i - j) / (psi(max(i, t)) + 1e-6)),   psi(x) = ln(|c x| + 1)

f is an MLP 1 -> mlp_width -> H with ReLU. c starts at `init_c`; the threshold t is |m| times
`init_threshold` (the paper's init_L), where m is a learnable multiplier that starts at 1. One
module is shared by all layers (FIRE-S in the paper). The bias is [H, R, K] for distances [R, K] and
query positions [R, 1].
"""

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor, nn

from posenc.encodings.base import Encoding, Geometry

GROUP_SIZE = 2**18  # maximum number of query-key pairs in a group of columns
MAX_INITIAL = 1e6  # keeps the product of c and T well within the range of float32


class Fire(Encoding):
    """An MLP of psi(distance) / psi(max(query position, threshold))."""

    limitations: Mapping[str, str] = {
        "shift_invariant": "distance is divided by a function of the query's position"
    }

    def __init__(
        self,
        geometry: Geometry,
        *,
        mlp_width: int = 32,
        init_c: float = 0.1,
        init_threshold: float = 512.0,
    ) -> None:
        super().__init__(geometry)
        if mlp_width < 1:
            raise ValueError(f"mlp_width={mlp_width} must be at least 1")
        for name, value in (("init_c", init_c), ("init_threshold", init_threshold)):
            if not 0 < value <= MAX_INITIAL:
                raise ValueError(f"{name}={value} must be positive and at most {MAX_INITIAL:.0f}")
        self.c = nn.Parameter(torch.tensor(float(init_c)))
        self.init_threshold = float(init_threshold)
        self.multiplier = nn.Parameter(torch.tensor(1.0))
        self.first = nn.Linear(1, mlp_width)
        self.second = nn.Linear(mlp_width, geometry.heads)

    def bias(self, head: Tensor, distance: Tensor, pos_q: Tensor) -> Tensor:
        dtype = distance.dtype
        threshold = (self.multiplier.to(dtype) * self.init_threshold).abs()
        normalizer = self._psi(torch.maximum(pos_q.to(dtype), threshold)) + 1e-6
        ratio = self._psi(distance.clamp(min=0)) / normalizer  # [R, K] or [B, 1, R, K]
        if ratio.ndim > 2:
            ratio = ratio.squeeze(1)
        heads = head.flatten()
        w, a = (p.to(dtype) for p in (self.first.weight.squeeze(1), self.first.bias))
        v, b = (p.to(dtype)[heads] for p in (self.second.weight, self.second.bias))
        out = scalar_mlp(ratio.flatten(0, -2), w, a, v, b)
        return out.unflatten(1, ratio.shape[:-1]).movedim(0, -3)

    def _psi(self, x: Tensor) -> Tensor:
        return torch.log1p((self.c.to(x.dtype) * x).abs())


@torch.library.custom_op("posenc::scalar_mlp", mutates_args=())
def scalar_mlp(x: Tensor, w: Tensor, a: Tensor, v: Tensor, b: Tensor) -> Tensor:
    """Return v relu(w x + a) + b [H, R, K] for x [R, K], w and a [F], v [H, F] and b [H].

    The MLP is piecewise linear in x. x is processed in groups of columns with similar distances, so
    that most groups span only one or two pieces. This is a custom operator because the groups
    depend on the values of tensors, which torch.compile and fake tensors do not support.
    """
    pieces = _pieces(w, a)
    w, a, v = w[pieces.order], a[pieces.order], v[:, pieces.order]
    slopes, offsets = (v * w) @ pieces.active.T, (v * a) @ pieces.active.T + b[:, None]
    jumps = v * w.abs()  # the change in slope at each knot
    out = x.new_empty(len(v), *x.shape)
    for columns, first, last in _column_groups(x, pieces.knots):
        group, inputs = out[..., columns], x[:, columns]
        torch.mul(inputs, slopes[:, first, None, None], out=group)
        group += offsets[:, first, None, None]
        if first < last:
            excess = (inputs.flatten() - pieces.knots[first:last, None]).clamp_(min=0)
            group += (jumps[:, first:last] @ excess).view_as(group)
    return out


@torch.library.custom_op("posenc::scalar_mlp_backward", mutates_args=())
def scalar_mlp_backward(
    grad_out: Tensor, x: Tensor, w: Tensor, a: Tensor, v: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return the gradients of x, w, a, v and b."""
    pieces = _pieces(w, a)
    order, active = pieces.order, pieces.active
    w, a, v = w[order], a[order], v[:, order]
    slopes, jumps = (v * w) @ active.T, v * w.abs()
    grad_x, grad_b = torch.empty_like(x), v.new_zeros(len(v))
    # Sums of grad and of grad * x over the x at which each unit is positive.
    sums, weighted_sums = torch.zeros_like(v), torch.zeros_like(v)
    for columns, first, last in _column_groups(x, pieces.knots):
        grad, inputs = grad_out[..., columns].flatten(1), x[:, columns].flatten()
        passed = (inputs > pieces.knots[first:last, None]).to(x.dtype)
        terms = torch.cat([passed, torch.ones_like(inputs)[None]])
        totals, weighted = grad @ terms.T, grad @ (terms * inputs).T
        sums.addmm_(totals[:, -1:], active[first : first + 1])
        weighted_sums.addmm_(weighted[:, -1:], active[first : first + 1])
        sign = w[first:last].sign()  # w > 0: the unit is active beyond its knot; w < 0: before it
        sums[:, first:last] += sign * totals[:, :-1]
        weighted_sums[:, first:last] += sign * weighted[:, :-1]
        by_term = torch.cat([jumps[:, first:last], slopes[:, first, None]], dim=1).T @ grad
        grad_x[:, columns] = (by_term * terms).sum(0).view_as(x[:, columns])
        grad_b += totals[:, -1]
    grads = torch.empty_like(w), torch.empty_like(a), torch.empty_like(v)
    grads[0][order] = (v * weighted_sums).sum(0)
    grads[1][order] = (v * sums).sum(0)
    grads[2][:, order] = w * weighted_sums + a * sums
    return grad_x, *grads, grad_b


@scalar_mlp.register_fake
def _(x: Tensor, w: Tensor, a: Tensor, v: Tensor, b: Tensor) -> Tensor:
    return x.new_empty(v.shape[0], *x.shape)


@scalar_mlp_backward.register_fake
def _(
    grad_out: Tensor, x: Tensor, w: Tensor, a: Tensor, v: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    inputs = x, w, a, v, v[:, 0]
    return tuple(torch.empty_like(tensor) for tensor in inputs)  # type: ignore[return-value]


def _save_inputs(ctx, inputs, output) -> None:  # type: ignore[no-untyped-def]
    ctx.save_for_backward(*inputs[:4])


def _backward(ctx, grad_out):  # type: ignore[no-untyped-def]
    return scalar_mlp_backward(grad_out, *ctx.saved_tensors)


scalar_mlp.register_autograd(_backward, setup_context=_save_inputs)


class Pieces(NamedTuple):
    """The linear pieces of a sum of units relu(w x + a), separated by the units' knots -a / w.

    `knots` [F] are sorted; a unit with w = 0 has its knot at infinity. `order` [F] holds the index
    of each knot's unit. Row p of `active` [F + 1, F] is 1 for the units, in this order, that are
    positive on piece p, which lies above the first p knots and below the others.
    """

    knots: Tensor
    order: Tensor
    active: Tensor


def _pieces(w: Tensor, a: Tensor) -> Pieces:
    infinity = torch.full_like(w, torch.inf)
    knots = torch.where(w == 0, infinity, -a / w)
    # x is beyond a knot if x > knot. A unit with w < 0 is already 0 at its knot, so that knot is
    # moved to the next smaller float.
    knots, order = torch.where(w < 0, knots.nextafter(-infinity), knots).sort()
    w, a = w[order], a[order]
    passed = torch.ones(len(w) + 1, len(w), device=w.device).tril(-1).bool()
    active = torch.where(w > 0, passed, torch.where(w < 0, ~passed, a > 0))
    return Pieces(knots, order, active.to(w.dtype))


def _column_groups(x: Tensor, knots: Tensor) -> Iterator[tuple[slice, int, int]]:
    """Yield groups of columns of x [R, K], each with the index range of the knots that it spans.

    If the columns are ordered by distance, as in text, most columns lie within a single piece.
    Consecutive columns then form a group if they lie in the same piece, or if each of them spans
    several pieces.
    """
    first, last = torch.searchsorted(knots, torch.stack([x.amin(0), x.amax(0)]))
    piece = torch.where(first == last, first, -1)
    starts = [0, *((piece[1:] != piece[:-1]).nonzero().flatten() + 1).tolist()]
    if len(starts) > 2 * len(knots) + 1:  # the columns are not ordered by distance
        starts = [0]
    width = max(1, GROUP_SIZE // len(x))
    for begin, end in pairwise([*starts, x.shape[1]]):
        for start in range(begin, end, width):
            columns = slice(start, min(start + width, end))
            yield columns, int(first[columns].min()), int(last[columns].max())
