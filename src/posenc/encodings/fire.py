"""FIRE, functional interpolation for relative positions (Li et al. 2024, 2310.04418).

    score_h(i, j) += f_h(psi(i - j) / (psi(max(i, T)) + 1e-6)),   psi(x) = ln(|c x| + 1)

f is an MLP 1 -> mlp_width -> H with ReLU. c starts at `init_c`; the threshold T is `init_threshold`
(the paper's init_L) times a learnable multiplier that starts at 1. One module is shared by all
layers (FIRE-S in the paper). The bias is [H, R, K] for distances [R, K] and query positions [R, 1].
"""

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from posenc.encodings.base import Encoding, Geometry

CHUNK_SIZE = 2**13  # pairs per chunk, so that their hidden units fit in a CPU's cache
MAX_INITIAL = 1e6  # keeps the product of c and T well within float32


class Fire(Encoding):
    """An MLP of psi(distance) / psi(max(query position, threshold))."""

    limitations: Mapping[str, str] = {
        "shift": "distance is divided by a function of the query's position"
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
        relative = self._psi(distance.clamp(min=0)) / normalizer  # [R, K] or [B, 1, R, K]
        if relative.ndim > 2:
            relative = relative.squeeze(1)
        heads = head.flatten()
        first = (p.to(dtype) for p in (self.first.weight, self.first.bias))
        second = (p.to(dtype)[heads] for p in (self.second.weight, self.second.bias))
        out = ScalarMLP.apply(relative.reshape(1, -1), *first, *second)
        return out.unflatten(1, relative.shape).movedim(0, -3)

    def _psi(self, x: Tensor) -> Tensor:
        return torch.log1p((self.c.to(x.dtype) * x).abs())


class ScalarMLP(torch.autograd.Function):
    """Computes v relu(w x + a) + b [H, N] for x [1, N], w [F, 1], a [F], v [H, F] and b [H].

    It processes x in chunks: the hidden units [F, N] are never all in memory, and the backward
    pass recomputes them.
    """

    @staticmethod
    def forward(ctx, x, w, a, v, b):  # type: ignore[no-untyped-def]
        ctx.save_for_backward(x, w, a, v)
        out = x.new_empty(len(v), x.shape[1])
        for out_chunk, x_chunk in zip(
            out.split(CHUNK_SIZE, 1), x.split(CHUNK_SIZE, 1), strict=True
        ):
            torch.addmm(b[:, None], v, _hidden(x_chunk, w, a), out=out_chunk)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_out):  # type: ignore[no-untyped-def]
        x, w, a, v = ctx.saved_tensors
        grad_x, grad_w, grad_a, grad_v = (torch.zeros_like(tensor) for tensor in (x, w, a, v))
        chunks = (tensor.split(CHUNK_SIZE, 1) for tensor in (grad_out, x, grad_x))
        for grad_out_chunk, x_chunk, grad_x_chunk in zip(*chunks, strict=True):
            hidden = _hidden(x_chunk, w, a)
            grad_v.addmm_(grad_out_chunk, hidden.T)
            grad_hidden = (v.T @ grad_out_chunk).mul_(hidden > 0)
            grad_w.addmm_(grad_hidden, x_chunk.T)
            grad_a.add_(grad_hidden.sum(1))
            torch.mm(w.T, grad_hidden, out=grad_x_chunk)
        return grad_x, grad_w, grad_a, grad_v, grad_out.sum(1)


def _hidden(x: Tensor, w: Tensor, a: Tensor) -> Tensor:
    return torch.addmm(a[:, None], w, x).relu_()
