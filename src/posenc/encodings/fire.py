"""FIRE (Li et al. 2024, 2310.04418): a trained function of interpolated distance.

    score_h(i, j) += f_h(psi(i - j) / (psi(max(i, T)) + 1e-6)),   psi(x) = ln(|c x| + 1)

f is a perceptron 1 -> hidden -> H with ReLU; c, from 0.1, and T, from 512 through a multiplier
of 1, are trained. One module, shared by the layers (the paper's FIRE-S, by report).
A bias [H, R, K] of distances [R, K] and positions of the queries [R, 1].
"""

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from posenc.encodings.base import Encoding, Geometry

PIECE = 2**13  # pairs at a time, whose hidden units stay in a CPU's cache
LARGEST = 1e6  # scale and threshold: their product stays well within float32


class Fire(Encoding):
    """Distance relative to the query's position, past a trained threshold, through a perceptron."""

    limitations: Mapping[str, str] = {
        "shift": "distance is divided by a function of the query's position"
    }

    def __init__(
        self,
        geometry: Geometry,
        *,
        hidden: int = 32,
        scale: float = 0.1,
        threshold: float = 512.0,
    ) -> None:
        super().__init__(geometry)
        if hidden < 1:
            raise ValueError(f"hidden={hidden} must be 1 or more")
        for name, value in (("scale", scale), ("threshold", threshold)):
            if not 0 < value <= LARGEST:
                raise ValueError(f"{name}={value} must be above 0 and at most {LARGEST:.0f}")
        self.c = nn.Parameter(torch.tensor(float(scale)))
        self.threshold = float(threshold)
        self.multiplier = nn.Parameter(torch.tensor(1.0))
        self.inner = nn.Linear(1, hidden)
        self.outer = nn.Linear(hidden, geometry.heads)

    def bias(self, head: Tensor, distance: Tensor, pos_q: Tensor) -> Tensor:
        dtype = distance.dtype
        threshold = (self.multiplier.to(dtype) * self.threshold).abs()
        normaliser = self._psi(torch.maximum(pos_q.to(dtype), threshold)) + 1e-6
        relative = self._psi(distance.clamp(min=0)) / normaliser  # [R, K] or [B, 1, R, K]
        if relative.ndim > 2:
            relative = relative.squeeze(1)
        heads = head.flatten()
        inner = (p.to(dtype) for p in (self.inner.weight, self.inner.bias))
        outer = (p.to(dtype)[heads] for p in (self.outer.weight, self.outer.bias))
        out = Perceptron.apply(relative.reshape(1, -1), *inner, *outer)
        return out.unflatten(1, relative.shape).movedim(0, -3)

    def _psi(self, x: Tensor) -> Tensor:
        return torch.log1p((self.c.to(x.dtype) * x).abs())


class Perceptron(torch.autograd.Function):
    """v relu(w x + a) + b [H, N] of x [1, N], for w [F, 1], a [F], v [H, F] and b [H].

    A piece of x at a time: the hidden units [F, N] are never whole, and formed again in the
    backward pass.
    """

    @staticmethod
    def forward(ctx, x, w, a, v, b):  # type: ignore[no-untyped-def]
        ctx.save_for_backward(x, w, a, v)
        out = x.new_empty(len(v), x.shape[1])
        for into, piece in zip(out.split(PIECE, 1), x.split(PIECE, 1), strict=True):
            torch.addmm(b[:, None], v, _hidden(piece, w, a), out=into)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):  # type: ignore[no-untyped-def]
        x, w, a, v = ctx.saved_tensors
        of_x, of_w, of_a, of_v = (torch.zeros_like(part) for part in (x, w, a, v))
        pieces = (part.split(PIECE, 1) for part in (grad, x, of_x))
        for from_out, piece, into in zip(*pieces, strict=True):
            hidden = _hidden(piece, w, a)
            of_v.addmm_(from_out, hidden.T)
            from_hidden = (v.T @ from_out).mul_(hidden > 0)
            of_w.addmm_(from_hidden, piece.T)
            of_a.add_(from_hidden.sum(1))
            torch.mm(w.T, from_hidden, out=into)
        return of_x, of_w, of_a, of_v, grad.sum(1)


def _hidden(x: Tensor, w: Tensor, a: Tensor) -> Tensor:
    return torch.addmm(a[:, None], w, x).relu_()
