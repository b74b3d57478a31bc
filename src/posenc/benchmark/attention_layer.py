"""The attention of a single layer without its projections, for the attention passes."""

import torch
from omegaconf import DictConfig
from torch import Tensor

from posenc.attention.choice import get_kernel
from posenc.attention.precision import attention_dtype, autocast
from posenc.benchmark.timing import call_seconds
from posenc.config.steps import sequences_per_step
from posenc.model.build import build_encoding
from posenc.model.device import select_device


class BenchmarkedAttention:
    """The rotation and the attention kernel of layer 0, on random queries, keys and values."""

    def __init__(self, config: DictConfig) -> None:
        self.device, self.precision = select_device(config), config.precision
        encoding = build_encoding(config, list(config.modules)).to(self.device)
        self.kernel, self.layer = get_kernel(config.kernel), encoding.at_layer(0)
        sequences, _ = sequences_per_step(config)
        geometry, length = encoding.geometry, config.train_length
        self.pos = encoding.positions(length, self.device)
        generator = torch.Generator().manual_seed(0)
        x = torch.randn(sequences, length, geometry.width, generator=generator).to(self.device)
        shape = (3, sequences, geometry.heads, length, geometry.head_width)
        qkv = torch.randn(shape, generator=generator).to(
            self.device, attention_dtype(self.precision)
        )
        self.x = encoding.embed(x, self.pos).detach()
        self.qkv = list(qkv.unbind())

    def pass_seconds(self, pass_: str) -> float:
        """Return how long "attention_forward" or "attention_step" (with gradients) takes."""
        run_pass = self.step if pass_ == "attention_step" else self.forward
        return call_seconds(run_pass, self.device)

    @torch.no_grad()
    def forward(self) -> Tensor:
        """Return the attention output [B, H, T, d]."""
        return self._attend(self.x, *self.qkv)

    def step(self) -> tuple[Tensor | None, ...]:
        """Return the gradients of x, q, k, v and the parameters, with None for unused tensors."""
        inputs = [tensor.requires_grad_() for tensor in (self.x, *self.qkv)]
        out = self._attend(*inputs)
        leaves = [*inputs, *(p for p in self.layer.parameters() if p.requires_grad)]
        return torch.autograd.grad(out, leaves, torch.ones_like(out), allow_unused=True)

    def _attend(self, x: Tensor, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        with autocast(self.precision, self.device):
            q, k = self.layer.rotate(x, q, k, self.pos)
        return self.kernel(self.layer, x, q, k, v, self.pos)
