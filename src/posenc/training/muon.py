"""Muon, momentum orthogonalized by Newton-Schulz (Jordan et al. 2024).

With momentum m, gradient g, matrix W of shape [A, B], learning rate r and weight decay d:

    v = m v + (1 - m) g,   u = NS(m v + (1 - m) g),   W = (1 - r d) W - 0.2 r sqrt(max(A, B)) u

NS, five Newton-Schulz steps, moves all singular values close to 1. The factor 0.2 sqrt(max(A, B))
of Liu et al. 2025 (arXiv:2502.16982, section 2.2) gives the update about the same root mean square
as an AdamW update.

torch.optim.Muon with adjust_lr_fn="match_rms_adamw" computes the same update with NS in bfloat16.
On CPUs without native bfloat16 matrix products, that takes eight times as long as in float32, and
longer than the rest of a small model's step. On a CPU, NS therefore runs in float32 here.
"""

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor, distribute_tensor

NS_COEFFICIENTS = (3.4445, -4.7750, 2.0315)
NS_STEPS = 5


class Muon(torch.optim.Optimizer):
    """Muon with Nesterov momentum and decoupled weight decay, for parameters [A, B]."""

    def __init__(
        self,
        parameters: list[torch.nn.Parameter],
        *,
        learning_rate: float,
        momentum: float,
        weight_decay: float,
    ) -> None:
        defaults = {"lr": learning_rate, "momentum": momentum, "weight_decay": weight_decay}
        super().__init__(parameters, defaults)

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Update every parameter that has a gradient."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                state, grad = self.state[parameter], parameter.grad
                if not state:
                    state["momentum"] = torch.zeros_like(grad)
                velocity = state["momentum"].lerp_(grad, 1 - group["momentum"])
                update = orthogonalized(grad.lerp(velocity, group["momentum"]))
                scale = 0.2 * max(parameter.shape) ** 0.5
                parameter.mul_(1 - group["lr"] * group["weight_decay"])
                parameter.add_(update, alpha=-group["lr"] * scale)


def orthogonalized(matrix: Tensor) -> Tensor:
    """Return the matrix [A, B] with its singular values moved close to 1 (to within about 0.3).

    A matrix that is sharded across devices is gathered, and the result is sharded the same way.
    """
    if isinstance(matrix, DTensor):
        full = orthogonalized(matrix.full_tensor())
        return distribute_tensor(full, matrix.device_mesh, matrix.placements, src_data_rank=None)
    if matrix.shape[0] > matrix.shape[1]:
        return orthogonalized(matrix.T).T
    a, b, c = NS_COEFFICIENTS
    x = matrix if matrix.device.type == "cpu" else matrix.bfloat16()
    x = x / x.norm().clamp(min=1e-7)
    for _ in range(NS_STEPS):
        gram = x @ x.T
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.to(matrix.dtype)
