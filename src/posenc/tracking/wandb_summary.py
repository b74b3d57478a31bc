"""A run's W&B summary: one value per metric, shown in the run table."""

from collections.abc import Mapping
from typing import Any

from omegaconf import DictConfig, OmegaConf

from posenc.report.quantities import QUANTITIES
from posenc.runs.files import read_json, read_jsonl
from posenc.runs.run_directory import RunDirectory
from posenc.tracking.wandb_config import experiment_folder
from posenc.tracking.wandb_history import MAIN_SPLIT, training_row

MAIN_PROTOCOL = "nonoverlapping"
COSTS = ("training_tokens_per_second", "training_memory_mb")
BENCHMARK_MEASURES = ("tokens_per_second", "peak_memory_mb", "utilisation")


def run_summary(directory: RunDirectory, config: DictConfig) -> dict[str, Any]:
    """Return the last training metrics, perplexities by length, training costs and benchmarks.

    Always the whole summary: if a run has several offline run files, W&B keeps the summary of the
    last one that is uploaded.
    """
    last: dict[str, Any] = {}
    for row in directory.metrics():
        last |= training_row(row)
    return {
        **last,
        **extrapolation_summary(directory.rows(), config),
        **_costs(directory),
        **_benchmarks(directory, config),
    }


def extrapolation_summary(rows: list[dict[str, Any]], config: DictConfig) -> dict[str, float]:
    """Return the perplexities on the run's own validation text and the `extrapolation_ratio`.

    The keys are `ppl@L`, `ppl@2L`, `ppl@L+50` and so on. The ratio is the perplexity at the longest
    length divided by that at the training length.
    """
    own_text = (config.frozen.fingerprint, MAIN_SPLIT, None, MAIN_PROTOCOL)
    perplexity = {
        row["length"]: row["perplexity"]
        for row in rows
        if (row["data"], row["split"], row["swap"], row["protocol"]) == own_text
    }
    train_length = config.train_length
    summary = {
        f"ppl@{length_label(length, train_length)}": value for length, value in perplexity.items()
    }
    longest = max(perplexity, default=0)
    if train_length in perplexity and longest > train_length:
        summary["extrapolation_ratio"] = perplexity[longest] / perplexity[train_length]
    return summary


def length_label(length: int, train_length: int) -> str:
    """Return a length in terms of the training length L: `L`, `2L`, or `L+50` if not a multiple."""
    if length % train_length:
        return f"L{length - train_length:+}"
    return "L" if length == train_length else f"{length // train_length}L"


def _costs(directory: RunDirectory) -> dict[str, float]:
    timing = read_jsonl(directory.timing_file)
    quantities = [QUANTITIES[name] for name in COSTS] if timing else []
    return {f"cost/{q.name}": q.in_unit(q.read(timing)) for q in quantities}


def _benchmarks(directory: RunDirectory, config: DictConfig) -> dict[str, float]:
    """Return the experiment's results of `posenc bench` for this encoding, model and length."""
    file = experiment_folder(directory) / "bench" / "bench.json"
    rows = read_json(file)["rows"] if file.exists() else []
    return {
        f"bench/{row['pass']}_{name}": row[name]
        for row in rows
        if _measures_same_model(row, config)
        for name in BENCHMARK_MEASURES
        if row[name] is not None
    }


def _measures_same_model(row: Mapping[str, Any], config: DictConfig) -> bool:
    encoding, model = (OmegaConf.to_container(config[key]) for key in ("encoding", "model"))
    measured = (row["encoding_config"], row["model_config"], row["length"], row["precision"])
    trained = (encoding, model, config.train_length, config.precision)
    return measured == trained and row["kernel"] in ("auto", config.kernel)
