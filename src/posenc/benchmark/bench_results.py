"""Builds the result rows of a benchmark, and compares kernels and published costs."""

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from omegaconf import OmegaConf

from posenc.benchmark.bench_settings import ATTENTION_PASSES
from posenc.benchmark.measurement_process import matmul_flops
from posenc.benchmark.variants import Variant
from posenc.config.errors import ConfigError
from posenc.model.device import select_device
from posenc.report.table import Column, Table
from posenc.runs.row_types import Row
from posenc.training.compilation import should_compile

PUBLISHED_KEYS = ("encoding", "length", "train_wps", "eval_wps", "memory_gb")
PUBLISHED_SPEED = {"forward": "eval_wps", "step": "train_wps"}
PublishedCosts = dict[tuple[str, int], Mapping[str, Any]]
"""(encoding, length) -> training and evaluation speed in words/s, and training memory in GB."""
KERNEL_NOTE = (
    "The fastest kernel has the lowest median time. Each number is a kernel's time divided by the"
    " fastest kernel's time in the same round (median over the rounds). If auto is not the fastest,"
    " request the fastest kernel by name; AUTO_KERNELS in posenc/attention/choice.py determines"
    " what auto uses."
)


def result_rows(
    variants: Sequence[Variant],
    rounds: Sequence[dict[str, Any]],
    peaks: Sequence[float | None],
    machine: dict[str, Any],
) -> list[Row]:
    """Return a row for each variant with its settings, the machine and all measurements.

    Ratios of time and peak memory are relative to the first variant with the same length and pass.
    Time ratios are computed within each round; the row has their median, minimum and maximum.
    """
    baseline_indices: dict[tuple[int, str], int] = {}
    rows: list[Row] = []
    for i, variant in enumerate(variants):
        base = baseline_indices.setdefault((variant.length, variant.pass_), i)
        peak, base_peak = peaks[i], peaks[base]
        seconds = [round_["seconds"][i] for round_ in rounds]
        ratios = [round_["seconds"][i] / round_["seconds"][base] for round_ in rounds]
        matmul_seconds = [round_["matmuls"][variant.config.precision] for round_ in rounds]
        rows.append(
            _settings(variant)
            | machine
            | _speed(variant, seconds, matmul_seconds)
            | {
                "ratio_to": variants[base].label,
                "ratio": median(ratios),
                "ratio_lowest": min(ratios),
                "ratio_highest": max(ratios),
                "peak_memory_mb": peak,
                "peak_memory_ratio": peak / base_peak if peak is not None and base_peak else None,
                "rounds": len(rounds),
                "seconds": seconds,
                "ratios": ratios,
                "matmul_seconds": matmul_seconds,
            }
        )
    return rows


def _settings(variant: Variant) -> Row:
    config = variant.config
    return {
        "encoding": variant.label,
        "encoding_config": OmegaConf.to_container(config.encoding),
        "model": config.choices.model,
        "model_config": OmegaConf.to_container(config.model),
        "kernel": config.kernel,
        "kernels_used": variant.kernels,
        "kernel_reason": variant.kernel_reason,
        "auto_kernels": variant.auto_kernels,
        "length": variant.length,
        "pass": variant.pass_,
        "batch_tokens": config.batch_tokens,
        "vocab_size": config.vocab_size,
        "precision": config.precision,
        "compile": should_compile(config) and variant.pass_ not in ATTENTION_PASSES,
    }


def _speed(variant: Variant, seconds: list[float], matmul_seconds: list[float]) -> Row:
    median_seconds = median(seconds)
    matmul_flops_per_second = matmul_flops(select_device(variant.config)) / median(matmul_seconds)
    return {
        "milliseconds": 1e3 * median_seconds,
        "tokens_per_second": variant.config.batch_tokens / median_seconds,
        "flops": variant.flops,
        "matmul_flops_per_second": matmul_flops_per_second,
        "utilization": variant.flops / median_seconds / matmul_flops_per_second,
    }


def read_published(costs: Mapping[str, Any] | None) -> PublishedCosts:
    """Return the rows of the config key `published_costs`, keyed by encoding and length.

    `costs` must have the form {source: string, rows: [{encoding, length, train_wps, eval_wps,
    memory_gb}]}. Raises ConfigError for other keys and for numbers that are not positive.
    """
    if costs is None:
        return {}
    is_valid = set(costs) == {"source", "rows"} and isinstance(costs["source"], str)
    if not is_valid or isinstance(costs["rows"], str) or not isinstance(costs["rows"], Sequence):
        raise ConfigError(
            "published_costs must have source (a string) and rows (a list of mappings)"
        )
    for i, row in enumerate(costs["rows"]):
        fields = row if isinstance(row, Mapping) else {}
        encoding, *numbers = [fields.get(key) for key in PUBLISHED_KEYS]
        positive = all(
            isinstance(number, int | float) and not isinstance(number, bool) and number > 0
            for number in numbers
        )
        if not isinstance(encoding, str) or not positive or set(fields) != set(PUBLISHED_KEYS):
            keys = ", ".join(PUBLISHED_KEYS)
            raise ConfigError(
                f"published_costs.rows[{i}]={row!r} must have {keys}: a name and positive numbers"
            )
    return {(row["encoding"], row["length"]): row for row in costs["rows"]}


def published_ratios(row: Mapping[str, Any], published: PublishedCosts) -> dict[str, float | None]:
    """Return the published time and memory ratios that correspond to a row.

    Only ratios are comparable between machines. A ratio is None if no costs were published for the
    encoding, its baseline or the pass. Published memory was measured in training.
    """
    cost = published.get((row["encoding"], row["length"]))
    base = published.get((row["ratio_to"], row["length"]))
    speed = PUBLISHED_SPEED.get(row["pass"])
    if cost is None or base is None or speed is None:
        return {"published_ratio": None, "published_memory_ratio": None}
    memory = cost["memory_gb"] / base["memory_gb"] if row["pass"] == "step" else None
    return {"published_ratio": base[speed] / cost[speed], "published_memory_ratio": memory}


def compare_kernels(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Return a record for each encoding, length and pass that was measured with several kernels.

    A record has the setup, the `fastest` kernel, and each kernel's time relative to the fastest
    (the median ratio over the rounds, or None if the kernel was not measured).
    """
    groups: dict[tuple[int, str, str], dict[str, Row]] = {}
    for row in rows:
        key = row["length"], row["pass"], row["encoding"]
        groups.setdefault(key, {})[row["kernels_used"]] = row
    kernels = list(dict.fromkeys(row["kernels_used"] for row in rows))
    return [_record(group, kernels) for group in groups.values() if len(group) > 1]


def _record(group: Mapping[str, Row], kernels: Sequence[str]) -> dict[str, Any]:
    fastest = min(group.values(), key=lambda row: row["milliseconds"])
    ratios = {kernel: _ratio(row, fastest) for kernel, row in group.items()}
    model = fastest["model_config"]
    return {
        "device": fastest["device"],
        "precision": fastest["precision"],
        "head_dim": model["width"] // model["heads"],
        "encoding": fastest["encoding"],
        "length": fastest["length"],
        "pass": fastest["pass"],
        "auto": fastest["auto_kernels"],
        "fastest": fastest["kernels_used"],
        "auto_over_fastest": ratios.get(fastest["auto_kernels"]),
        **{kernel: ratios.get(kernel) for kernel in kernels},
    }


def _ratio(row: Row, fastest: Row) -> float:
    pairs = zip(row["seconds"], fastest["seconds"], strict=True)
    return median(seconds / base for seconds, base in pairs)


def kernel_table(records: Sequence[dict[str, Any]]) -> Table:
    """Return the records as a table with a column for each kernel."""
    keys = [key for key in records[0] if key not in ("device", "precision", "head_dim")]
    formats = {"length": "", "encoding": "", "pass": "", "auto": "", "fastest": ""}
    columns = [
        Column(
            key.replace("_over_", " / "),
            align="left" if key in formats and key != "length" else "right",
            format=formats.get(key, ".2f"),
        )
        for key in keys
    ]
    return Table("Kernels", columns, [[r[key] for key in keys] for r in records], [KERNEL_NOTE])
