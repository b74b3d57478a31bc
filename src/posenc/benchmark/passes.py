"""A model on fixed tokens: forward alone, or through a whole training step."""

import time
from collections.abc import Callable

import torch
from omegaconf import DictConfig
from torch import Tensor, nn

from posenc.attention.precision import autocast, dtype_of
from posenc.config.components import build
from posenc.config.steps import sequences_per_step
from posenc.model.build import build_model
from posenc.model.device import device_of

PRODUCT = {"cpu": 2048, "cuda": 8192}
"""Rows and columns of the matrices whose product is the peak, large enough to reach it."""


class Passes:
    """What `config` describes, as training builds it."""

    def __init__(self, config: DictConfig) -> None:
        modules = list(config.modules)
        self.config, self.device = config, device_of(config)
        self.model = build_model(config, config.vocab_size).to(self.device)
        self.losses = torch.compile(self.model.losses) if config.compile else self.model.losses
        self.optimizer = build(config.optimizer, name="optimizer", modules=modules)(self.model)
        sequences, self.micro_sequences = sequences_per_step(config)
        drawn = torch.Generator().manual_seed(0)
        shape = (sequences, config.train_length)
        self.tokens = torch.randint(config.vocab_size, shape, generator=drawn).to(self.device)

    def run(self, pass_: str, tokens: Tensor) -> None:
        """`forward` or `step` of tokens [B, T], in micro-batches."""
        self._prepared(pass_)(tokens)

    def seconds(self, pass_: str) -> float:
        """How long a pass over all tokens takes."""
        call = self._prepared(pass_)
        return seconds(lambda: call(self.tokens), self.device)

    def _prepared(self, pass_: str) -> Callable[[Tensor], None]:
        self.model.train(pass_ == "step")
        return self._step if pass_ == "step" else self._forward

    @torch.no_grad()
    def _forward(self, tokens: Tensor) -> None:
        for part in tokens.split(self.micro_sequences):
            self._losses(part)

    def _step(self, tokens: Tensor) -> None:
        for part in tokens.split(self.micro_sequences):
            loss = self._losses(part).mean()
            (loss * (len(part) / len(tokens))).backward()
        if self.config.gradient_clip is not None:
            nn.utils.clip_grad_norm_(self.model.parameters(), self.config.gradient_clip)
        self.optimizer.step()
        self.optimizer.zero_grad()

    def _losses(self, tokens: Tensor) -> Tensor:
        with autocast(self.config.precision, self.device):
            return self.losses(tokens, tokens)


class MatrixProduct:
    """A square matrix product in the precision of a model's: what the machine can do at best."""

    def __init__(self, precision: str, device: torch.device) -> None:
        self.device = device
        size = PRODUCT[device.type]
        dtype = dtype_of(precision)
        self.a, self.b = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
        self.out = torch.empty_like(self.a)

    def seconds(self) -> float:
        return seconds(lambda: torch.mm(self.a, self.b, out=self.out), self.device)


def seconds(call: Callable[[], object], device: torch.device) -> float:
    """How long a call takes, on a GPU until the last of its kernels has ended."""
    _wait(device)
    started = time.perf_counter()
    call()
    _wait(device)
    return time.perf_counter() - started


def product_flops(device: torch.device) -> int:
    """Operations of one matrix product."""
    return 2 * PRODUCT[device.type] ** 3


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
