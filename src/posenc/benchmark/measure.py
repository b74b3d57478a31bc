"""Measuring all variants: the memory of each in its own process, then their times in one."""

from collections.abc import Callable, Sequence
from typing import Any

from omegaconf import OmegaConf

from posenc.benchmark.variants import Variant
from posenc.benchmark.worker import ask
from posenc.config.errors import RunError
from posenc.model.device import device_of

Report = Callable[[str], None]


def peaks(variants: Sequence[Variant], threads: int, report: Report) -> list[float | None]:
    """By how many MB each variant's pass makes the peak grow.

    None where a CPU compiles: the compiler is in the same process, and larger than the model.
    """
    found: list[float | None] = []
    for number, variant in enumerate(variants, 1):
        report(f"memory {number}/{len(variants)}: {variant}")
        found.append(None if _compiles_on_cpu(variant) else _peak(variant, threads))
    return found


def times(variants: Sequence[Variant], threads: int, report: Report) -> list[dict[str, Any]]:
    """The rounds, the warm-up left out, as `posenc.benchmark.timing` tells them."""
    configs = list({id(variant.config): variant.config for variant in variants}.values())
    number = {id(config): i for i, config in enumerate(configs)}
    wanted = configs[0].rounds
    # What is compiled may be compiled once more when it runs for the second time.
    warm_up = 2 if any(config.compile for config in configs) else 1
    request = {
        "configs": [OmegaConf.to_container(config) for config in configs],
        "variants": [(number[id(variant.config)], variant.pass_) for variant in variants],
        "rounds": warm_up + wanted,
    }
    report(f"{len(variants)} variants, warming up")
    rounds: list[dict[str, Any]] = []
    for answer in ask("posenc.benchmark.timing", request, threads):
        rounds.append(answer)
        done = len(rounds) - warm_up
        report(f"{len(variants)} variants, {max(0, done)} of {wanted} rounds done")
    return rounds[warm_up:]


def _peak(variant: Variant, threads: int) -> float:
    request = {"config": OmegaConf.to_container(variant.config), "pass": variant.pass_}
    try:
        (answer,) = ask("posenc.benchmark.memory", request, threads)
    except RunError as error:
        raise RunError(f"{variant}: {error}") from None
    return answer["peak_memory_mb"]


def _compiles_on_cpu(variant: Variant) -> bool:
    return variant.config.compile and device_of(variant.config).type == "cpu"
