"""The process that measures variants: `python -m posenc.benchmark.measurement_process < REQUEST`.

A request with the key `rounds` asks for times, and any other request for peak memory. The responses
are JSON Lines.

All variants are timed in the same process and thus under the same conditions. Each round times
every variant once, then a matmul in each precision. Every other round times the variants
in reverse order, so that a gradual change in the speed of the machine favors no variant. Peak
memory is measured in a separate process for each variant, because the peak of a process never
decreases.
"""

import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from omegaconf import DictConfig, OmegaConf
from torch import Tensor, nn

from posenc.attention.choice import kernel_function
from posenc.benchmark.bench_settings import ATTENTION_PASSES
from posenc.benchmark.subprocess_calls import handle_request
from posenc.config.steps import sequences_per_step
from posenc.model.build import build_encoding, build_meta_model, build_model, check_memory
from posenc.model.device import attention_dtype, autocast, deterministic_numerics, select_device
from posenc.runs.environment import peak_megabytes
from posenc.training.compilation import should_compile
from posenc.training.optimizer import optimizer_factory

WARM_UP_TOKENS = 64
MATMUL_SIZE = {"cpu": 2048, "cuda": 8192}
"""Size of the square matrices whose product is timed to measure the device's peak FLOP/s."""


class BenchmarkedModel:
    """A model and optimizer, built as for training, with a batch of random tokens."""

    def __init__(self, config: DictConfig) -> None:
        self.config, self.device = config, select_device(config)
        check_memory(build_meta_model(config, config.vocab_size).parameter_count())
        self.model = build_model(config, config.vocab_size).to(self.device)
        compiled = should_compile(config)
        self.losses = torch.compile(self.model.losses) if compiled else self.model.losses
        self.optimizer = optimizer_factory(config)(self.model)
        sequences, self.micro_batch_size = sequences_per_step(config)
        generator = torch.Generator().manual_seed(0)
        shape = (sequences, config.train_length)
        self.tokens = torch.randint(config.vocab_size, shape, generator=generator).to(self.device)

    def run(self, pass_: str, tokens: Tensor) -> None:
        """Run the pass "forward" or "step" on tokens [B, T], in micro-batches."""
        self._pass_function(pass_)(tokens)

    def pass_seconds(self, pass_: str) -> float:
        """Return how long a pass over the whole batch takes."""
        run_pass = self._pass_function(pass_)
        return call_seconds(lambda: run_pass(self.tokens), self.device)

    def _pass_function(self, pass_: str) -> Callable[[Tensor], None]:
        self.model.train(pass_ == "step")
        return self._step if pass_ == "step" else self._forward

    @torch.no_grad()
    def _forward(self, tokens: Tensor) -> None:
        for micro_batch in tokens.split(self.micro_batch_size):
            self._losses(micro_batch)

    def _step(self, tokens: Tensor) -> None:
        for micro_batch in tokens.split(self.micro_batch_size):
            loss = self._losses(micro_batch).mean()
            (loss * (len(micro_batch) / len(tokens))).backward()
        if self.config.gradient_clip is not None:
            nn.utils.clip_grad_norm_(self.model.parameters(), self.config.gradient_clip)
        self.optimizer.step()
        self.optimizer.zero_grad()

    def _losses(self, tokens: Tensor) -> Tensor:
        with autocast(self.config.precision, self.device):
            return self.losses(tokens, tokens)


def time_rounds(request: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield, for each round, the seconds of every variant and of one matmul per precision.

    `request` has `configs`, `variants` (pairs of an index into `configs` and a pass) and the number
    of `rounds`.
    """
    configs = [OmegaConf.create(config) for config in request["configs"]]
    if any(should_compile(config) for config in configs):
        # By default, torch.compile only warns and falls back to eager mode at this limit.
        torch._dynamo.config.recompile_limit *= len(request["variants"])
        torch._dynamo.config.fail_on_recompile_limit_hit = True
    benchmarked: dict[tuple[int, bool], BenchmarkedModel | BenchmarkedAttention] = {}
    variants = []
    for index, pass_ in request["variants"]:
        key = index, pass_ in ATTENTION_PASSES
        if key not in benchmarked:
            build = BenchmarkedAttention if key[1] else BenchmarkedModel
            benchmarked[key] = build(configs[index])
        variants.append((benchmarked[key], pass_))
    device, precisions = select_device(configs[0]), {config.precision for config in configs}
    matmuls = {precision: make_matmul(precision, device) for precision in precisions}
    for round_ in range(request["rounds"]):
        order = variants if round_ % 2 == 0 else variants[::-1]
        times = [model.pass_seconds(pass_) for model, pass_ in order]
        yield {
            "seconds": times if round_ % 2 == 0 else times[::-1],
            "matmuls": {name: call_seconds(matmul, device) for name, matmul in matmuls.items()},
        }


def measure_peak(request: dict[str, Any]) -> Iterator[dict[str, float]]:
    """Yield `peak_memory_mb`: how much a pass raises the peak memory of the process.

    `request` has a `config` and a `pass`. A warm-up pass over a few tokens comes first, so that the
    optimizer state and, on a CPU, the gradients are not counted.
    """
    model = BenchmarkedModel(OmegaConf.create(request["config"]))
    model.run(request["pass"], model.tokens[:1, :WARM_UP_TOKENS])
    if model.device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(model.device)
    before = peak_megabytes()
    model.run(request["pass"], model.tokens)
    yield {"peak_memory_mb": peak_megabytes() - before}


def measure(request: dict[str, Any]) -> Iterator[dict[str, Any]]:
    with deterministic_numerics():
        yield from time_rounds(request) if "rounds" in request else measure_peak(request)


class BenchmarkedAttention:
    """The rotation and the attention kernel of layer 0, on random queries, keys and values."""

    def __init__(self, config: DictConfig) -> None:
        self.device, self.precision = select_device(config), config.precision
        encoding = build_encoding(config).to(self.device)
        self.kernel, self.layer = kernel_function(config.kernel), encoding.at_layer(0)
        sequences, _ = sequences_per_step(config)
        geometry, length = encoding.geometry, config.train_length
        self.pos = encoding.positions(length, self.device)
        generator = torch.Generator().manual_seed(0)
        x = torch.randn(sequences, length, geometry.width, generator=generator).to(self.device)
        shape = (3, sequences, geometry.heads, length, geometry.head_dim)
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


def make_matmul(precision: str, device: torch.device) -> Callable[[], Tensor]:
    """Return a function that multiplies two square matrices in the given precision."""
    size, dtype = MATMUL_SIZE[device.type], attention_dtype(precision)
    a, b = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
    return partial(torch.mm, a, b, out=torch.empty_like(a))


def matmul_flops(device: torch.device) -> int:
    """Return the floating-point operations of one matmul."""
    return 2 * MATMUL_SIZE[device.type] ** 3


def call_seconds(call: Callable[[], object], device: torch.device) -> float:
    """Return the duration of a call in seconds, including its GPU kernels."""
    synchronize = torch.get_device_module(device).synchronize  # does nothing on a CPU
    synchronize()
    start = time.perf_counter()
    call()
    synchronize()
    return time.perf_counter() - start


if __name__ == "__main__":
    sys.exit(handle_request(measure))
