"""Lower bounds on a benchmark's time and memory, computed before it starts."""

from collections.abc import Sequence

from posenc.benchmark.variants import Variant
from posenc.config.errors import ConfigError
from posenc.config.steps import sequences_per_step
from posenc.model.device import select_device
from posenc.runs.hardware import memory_bytes

MAX_CPU_FLOPS = {"float32": 3e11, "bf16": 3e12}
MAX_GPU_FLOPS = 3e15
"""Upper bounds on the FLOP/s of one CPU thread and of one GPU."""
MAX_ROUND_SECONDS = 300
FLOAT_BYTES = 4


def min_round_seconds(variants: Sequence[Variant], threads: int) -> float:
    """Return a lower bound in seconds on the time of a round, which runs every variant once.

    Raises ConfigError if it exceeds MAX_ROUND_SECONDS, or if a variant does not fit in main memory.
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
    """Return the size in bytes of a micro-batch's hidden states or, if larger, a layer's scores."""
    config, length = variant.config, variant.length
    _, micro_sequences = sequences_per_step(config)
    kept_layers = config.model.layers if variant.pass_ == "step" else 1
    hidden_states = micro_sequences * length * config.model.width * kept_layers
    has_scores = "reference" in variant.kernels
    scores = micro_sequences * config.model.heads * length**2 if has_scores else 0
    return FLOAT_BYTES * max(hidden_states, scores)
