"""FIRE, functional interpolation for relative positions (Li et al. 2024, 2310.04418).

    score_h(i, j) += f_h(psi(i - j) / (psi(max(i, T)) + 1e-6)),   psi(x) = ln(|c x| + 1)

f is an MLP 1 -> mlp_width -> H with ReLU. c starts at `init_c`; the threshold T is `init_threshold`
(the paper's init_L) times a learnable multiplier that starts at 1. One module is shared by all
layers (FIRE-S in the paper). The bias is [H, R, K] for distances [R, K] and query positions [R, 1].
"""

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn

from posenc.encodings.base import Encoding, Geometry

CHUNK_SIZE = 2**14  # query-key pairs per chunk; their terms fit in a CPU's cache
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
        relative = self._psi(distance.clamp(min=0)) / normalizer  # [R, K] or [B, 1, R, K]
        if relative.ndim > 2:
            relative = relative.squeeze(1)
        heads = head.flatten()
        w, a = (p.to(dtype) for p in (self.first.weight.squeeze(1), self.first.bias))
        v, b = (p.to(dtype)[heads] for p in (self.second.weight, self.second.bias))
        out = scalar_mlp(relative.reshape(-1), w, a, v, b)
        return out.unflatten(1, relative.shape).movedim(0, -3)

    def _psi(self, x: Tensor) -> Tensor:
        return torch.log1p((self.c.to(x.dtype) * x).abs())


@torch.library.custom_op("posenc::scalar_mlp", mutates_args=())
def scalar_mlp(x: Tensor, w: Tensor, a: Tensor, v: Tensor, b: Tensor) -> Tensor:
    """Return v relu(w x + a) + b [H, N] for x [N], w and a [F], v [H, F] and b [H].

    The MLP is piecewise linear in x, so it is computed as c max(x, t) + s x + d with the knots t
    that lie in the range of x. x is processed in chunks, whose terms are recomputed in the backward
    pass. This is a custom operator because the number of knots depends on values, which
    torch.compile and fake tensors do not support.
    """
    t, c, s, d = knots_and_slopes(unit_kinds(x, w, a), w, a, v, b)
    coefficients = torch.cat([c, s[:, None], d[:, None]], dim=1)
    out = x.new_empty(len(v), len(x))
    for chunk in _chunks(len(x)):
        torch.mm(coefficients, _terms(x[chunk], t), out=out[:, chunk])
    return out


@torch.library.custom_op("posenc::scalar_mlp_backward", mutates_args=())
def scalar_mlp_backward(
    grad_out: Tensor, x: Tensor, w: Tensor, a: Tensor, v: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return the gradients of x, w, a, v and b."""
    kinds = unit_kinds(x, w, a)
    t, c, s, _ = knots_and_slopes(kinds, w, a, v, v.new_zeros(len(v)))
    coefficients = torch.cat([c, s[:, None]], dim=1)
    grad_coefficients = v.new_zeros(len(v), len(t) + 2)
    grad_x, grad_t = torch.empty_like(x), torch.zeros_like(t)
    for chunk in _chunks(len(x)):
        grad_coefficients.addmm_(grad_out[:, chunk], _terms(x[chunk], t).T)
        grad_terms = coefficients.T @ grad_out[:, chunk]  # of max(x, t), then of x
        below = x[chunk] < t[:, None]
        grad_t.add_((grad_terms[:-1] * below).sum(1))
        grad_terms[:-1].masked_fill_(below, 0)
        grad_x[chunk] = grad_terms.sum(0)
    grad_c, grad_s, grad_d = grad_coefficients.split([len(t), 1, 1], dim=1)
    # The derivatives of knots_and_slopes.
    rising, falling, linear = kinds
    grad_rising, grad_falling = grad_c.split([int(rising.sum()), int(falling.sum())], dim=1)
    grad_slopes = torch.zeros_like(v)
    grad_slopes[:, rising] = grad_rising
    grad_slopes[:, falling] = grad_s - grad_falling
    grad_slopes[:, linear] = grad_s
    grad_w, grad_a = (v * grad_slopes).sum(0), torch.zeros_like(a)
    grad_v = w * grad_slopes
    grad_v[:, rising | linear] += grad_d * a[rising | linear]
    grad_a[rising | linear] = (grad_d * v[:, rising | linear]).sum(0)
    knots = torch.cat([rising.nonzero(), falling.nonzero()]).flatten()
    grad_w.index_add_(0, knots, grad_t * a[knots] / w[knots].square())
    grad_a.index_add_(0, knots, -grad_t / w[knots])
    return grad_x, grad_w, grad_a, grad_v, grad_d.flatten().clone()


@scalar_mlp.register_fake
def _(x: Tensor, w: Tensor, a: Tensor, v: Tensor, b: Tensor) -> Tensor:
    return x.new_empty(v.shape[0], x.shape[0])


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


def knots_and_slopes(
    kinds: tuple[Tensor, Tensor, Tensor], w: Tensor, a: Tensor, v: Tensor, b: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return t, c, s and d such that v relu(w x + a) + b equals c max(x, t) + s x + d.

    `kinds` is the result of `unit_kinds`. A rising unit is w max(x, t) + a, and a falling one
    w x - w max(x, t), with t = -a / w.
    """
    rising, falling, linear = kinds
    slopes = v * w
    t = -torch.cat([a[rising] / w[rising], a[falling] / w[falling]])
    c = torch.cat([slopes[:, rising], -slopes[:, falling]], dim=1)
    s = slopes[:, falling | linear].sum(1)
    return t, c, s, b + v[:, rising | linear] @ a[rising | linear]


def unit_kinds(x: Tensor, w: Tensor, a: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return masks [F] of the units relu(w x + a) that are rising, falling and linear.

    Rising and falling units have their knot in the range of x. All other units are zero.
    """
    at_ends = torch.stack([w * x.min() + a, w * x.max() + a])
    linear, zero = (at_ends >= 0).all(0), (at_ends <= 0).all(0)
    return (w > 0) & ~(linear | zero), (w < 0) & ~(linear | zero), linear & ~zero


def _terms(x: Tensor, t: Tensor) -> Tensor:
    """Return the rows max(x, t), x and 1 [F + 2, N]."""
    terms = x.new_empty(len(t) + 2, len(x))
    torch.maximum(x, t[:, None], out=terms[:-2])
    terms[-2], terms[-1] = x, 1
    return terms


def _chunks(size: int) -> Iterator[slice]:
    for start in range(0, size, CHUNK_SIZE):
        yield slice(start, start + CHUNK_SIZE)
