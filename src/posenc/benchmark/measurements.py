"""Measures all variants: peak memory in separate processes, times in a single process.

Lower bounds on the time and memory of a benchmark are computed before it starts.
"""

import platform
from collections.abc import Callable, Sequence
from datetime import date
from typing import Any

import torch
from omegaconf import OmegaConf

from posenc import __version__
from posenc.benchmark.bench_settings import ATTENTION_PASSES
from posenc.benchmark.subprocess_calls import call_module
from posenc.benchmark.variants import Variant
from posenc.config.errors import ConfigError, RunError, plural
from posenc.config.steps import sequences_per_step
from posenc.model.device import processor_name, select_device
from posenc.runs.hardware import memory_bytes
from posenc.training.compilation import should_compile

MEASUREMENT_PROCESS = "posenc.benchmark.measurement_process"
MAX_CPU_FLOPS = {"float32": 3e11, "bf16": 3e12}
MAX_GPU_FLOPS = 3e15
"""Upper bounds on the FLOP/s of one CPU thread and of one GPU."""
MAX_ROUND_SECONDS = 300
FLOAT_BYTES = 4


def measure_peak_memory(
    variants: Sequence[Variant], threads: int, on_progress: Callable[[str], None]
) -> list[float | None]:
    """Return how much each variant's pass raises the peak memory of its process, in MB.

    The value is None for attention alone, and if the model is compiled on a CPU, because the
    compiler runs in the same process and needs more memory than the pass. `on_progress` is called
    with progress messages.
    """
    peaks: list[float | None] = []
    for number, variant in enumerate(variants, 1):
        on_cpu = select_device(variant.config).type == "cpu"
        if (on_cpu and should_compile(variant.config)) or variant.pass_ in ATTENTION_PASSES:
            peaks.append(None)
            continue
        on_progress(f"memory {number}/{len(variants)}: {variant}")
        peaks.append(_peak_memory_mb(variant, threads))
    return peaks


def measure_times(
    variants: Sequence[Variant], threads: int, on_progress: Callable[[str], None]
) -> list[dict[str, Any]]:
    """Return the rounds of `measurement_process.time_rounds`, excluding warm-up rounds."""
    configs = list({id(variant.config): variant.config for variant in variants}.values())
    index = {id(config): i for i, config in enumerate(configs)}
    count = configs[0].rounds
    # torch.compile may recompile on the second call.
    warm_up = 2 if any(map(should_compile, configs)) else 1
    request = {
        "configs": [OmegaConf.to_container(config) for config in configs],
        "variants": [(index[id(variant.config)], variant.pass_) for variant in variants],
        "rounds": warm_up + count,
    }
    on_progress(f"{plural(len(variants), 'variant')}: warm-up")
    rounds: list[dict[str, Any]] = []
    for response in call_module(MEASUREMENT_PROCESS, request, threads):
        rounds.append(response)
        done = max(0, len(rounds) - warm_up)
        on_progress(f"{plural(len(variants), 'variant')}: {done} of {plural(count, 'round')}")
    return rounds[warm_up:]


def _peak_memory_mb(variant: Variant, threads: int) -> float:
    request = {"config": OmegaConf.to_container(variant.config), "pass": variant.pass_}
    try:
        (response,) = call_module(MEASUREMENT_PROCESS, request, threads)
    except RunError as error:
        raise RunError(f"{variant}: {error}") from None
    return response["peak_memory_mb"]


def describe_machine(device: torch.device, threads: int) -> dict[str, Any]:
    """Return the device, the number of threads, versions and the date of a measurement."""
    return {
        "device": processor_name(device),
        "threads": threads,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "posenc": __version__,
        "date": date.today().isoformat(),
    }


def min_round_seconds(variants: Sequence[Variant], threads: int) -> float:
    """Return a lower bound in seconds on the time of a round, which runs every variant once.

    Raises ConfigError if it exceeds MAX_ROUND_SECONDS or, on a CPU, if a variant does not fit in
    main memory.
    """
    on_cpu = select_device(variants[0].config).type == "cpu"
    rate = MAX_GPU_FLOPS
    if on_cpu:
        rate = threads * max(MAX_CPU_FLOPS[variant.config.precision] for variant in variants)
    seconds = sum(variant.flops for variant in variants) / rate
    if seconds > MAX_ROUND_SECONDS:
        raise ConfigError(
            f"each round of the benchmark takes at least {seconds / 60:,.0f} minutes at"
            f" {rate / 1e9:,.0f} GFLOP/s (limit: {MAX_ROUND_SECONDS // 60}); use a smaller model,"
            f" train_length or batch_tokens, or fewer variants"
        )
    for variant in variants if on_cpu else ():
        if (needed := _min_bytes(variant)) > memory_bytes():
            raise ConfigError(
                f"{variant}: a pass needs at least {needed / 1e9:,.0f} GB, but this machine has"
                f" {memory_bytes() / 1e9:,.0f} GB; use a smaller train_length or"
                f" micro_batch_tokens, or another kernel"
            )
    return seconds


def _min_bytes(variant: Variant) -> int:
    """Return a lower bound in bytes on the memory of a pass.

    It is the size of a micro-batch's hidden states (in all layers for a training step) or, if
    larger and the reference kernel is used, of one layer's scores.
    """
    config, length = variant.config, variant.length
    _, micro_batch_size = sequences_per_step(config)
    kept_layers = config.model.layers if variant.pass_ == "step" else 1
    hidden_states = micro_batch_size * length * config.model.width * kept_layers
    has_scores = "reference" in variant.kernels
    scores = micro_batch_size * config.model.heads * length**2 if has_scores else 0
    return FLOAT_BYTES * max(hidden_states, scores)
