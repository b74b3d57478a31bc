"""From times and peaks to rows: medians, ratios formed within a round, utilisation."""

from collections.abc import Sequence
from statistics import median
from typing import Any

from omegaconf import OmegaConf

from posenc.benchmark.passes import product_flops
from posenc.benchmark.variants import Variant
from posenc.model.device import device_of

Row = dict[str, Any]


def rows_of(
    variants: Sequence[Variant],
    rounds: Sequence[dict[str, Any]],
    peaks: Sequence[float | None],
    machine: dict[str, Any],
) -> list[Row]:
    """A row for each variant: what it is, what it was measured on, and everything measured.

    Ratios are to the first variant of the same length and pass: of time, formed within each round
    and then their median, lowest and highest; of peak memory.
    """
    first: dict[tuple[int, str], int] = {}
    rows: list[Row] = []
    for i, variant in enumerate(variants):
        base = first.setdefault((variant.length, variant.pass_), i)
        seconds = [one["seconds"][i] for one in rounds]
        ratios = [one["seconds"][i] / one["seconds"][base] for one in rounds]
        products = [one["products"][variant.config.precision] for one in rounds]
        rows.append(
            _identity(variant)
            | machine
            | _speed(variant, seconds, products)
            | {
                "ratio_to": variants[base].label,
                "ratio": median(ratios),
                "ratio_lowest": min(ratios),
                "ratio_highest": max(ratios),
                "peak_memory_mb": peaks[i],
                "peak_memory_ratio": _ratio(peaks[i], peaks[base]),
                "rounds": len(rounds),
                "seconds": seconds,
                "ratios": ratios,
                "product_seconds": products,
            }
        )
    return rows


def _identity(variant: Variant) -> Row:
    config = variant.config
    return {
        "encoding": variant.label,
        "encoding_config": OmegaConf.to_container(config.encoding),
        "model": config.choices.model,
        "model_config": OmegaConf.to_container(config.model),
        "kernel": config.kernel,
        "kernels_used": variant.facts.kernels,
        "kernel_reason": variant.facts.kernel_reason,
        "length": variant.length,
        "pass": variant.pass_,
        "batch_tokens": config.batch_tokens,
        "vocab_size": config.vocab_size,
        "precision": config.precision,
        "compile": config.compile,
    }


def _speed(variant: Variant, seconds: list[float], products: list[float]) -> Row:
    middle = median(seconds)
    peak = product_flops(device_of(variant.config)) / median(products)
    return {
        "milliseconds": 1e3 * middle,
        "tokens_per_second": variant.config.batch_tokens / middle,
        "flops": variant.flops,
        "product_flops_per_second": peak,
        "utilisation": variant.flops / middle / peak,
    }


def _ratio(peak: float | None, base: float | None) -> float | None:
    return peak / base if peak is not None and base else None
