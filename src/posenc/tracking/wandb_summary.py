"""A run's W&B summary: one value per metric, as shown in W&B's runs table."""

from typing import Any

from omegaconf import DictConfig, OmegaConf

from posenc.report.curve_set import describe_lengths
from posenc.report.quantities import QUANTITIES
from posenc.runs.evaluation_rows import budget_key, read_rows, rows_with_most_tokens
from posenc.runs.row_types import RowTypes
from posenc.runs.run_directory import RunDirectory
from posenc.tracking.wandb_config import experiment_folder
from posenc.tracking.wandb_history import MAIN_SPLIT, training_row

MAIN_PROTOCOL = "nonoverlapping"
COST_QUANTITIES = ("training_tokens_per_second", "training_memory_mb")
SPEED_KEY = f"cost/{COST_QUANTITIES[0]}"
RATIO_KEY = "extrapolation_ratio"
BENCHMARK_METRICS = ("tokens_per_second", "peak_memory_mb", "utilization")

BENCHMARK_TYPES = RowTypes(
    {
        **dict.fromkeys(("encoding_config", "model_config"), dict),
        **dict.fromkeys(("pass", "precision", "kernel"), str),
        "length": int,
        **dict.fromkeys(BENCHMARK_METRICS, int | float | None),
    }
)


def run_summary(directory: RunDirectory, config: DictConfig) -> dict[str, Any]:
    """Return the last training metrics, perplexities by length, training costs and benchmarks.

    Always returns the whole summary, because W&B keeps only the summary of the offline run file
    that is uploaded last.
    """
    last_metrics: dict[str, Any] = {}
    for row in directory.metrics():
        last_metrics |= training_row(row)
    return {
        **last_metrics,
        **extrapolation_summary(directory.rows(), config),
        **_costs(directory),
        **_benchmarks(directory, config),
    }


def extrapolation_summary(rows: list[dict[str, Any]], config: DictConfig) -> dict[str, float]:
    """Return perplexities on the validation split of the training corpus, and their ratio.

    The keys are `ppl@L`, `ppl@2L`, `ppl@L+50` and so on. `extrapolation_ratio` is the perplexity at
    the longest length that was evaluated with the same budget as the training length, divided by
    the perplexity at the training length. All values are for the final weights, MAIN_PROTOCOL and
    no swap.
    """
    validation_key = (config.planned.fingerprint, MAIN_SPLIT, None, MAIN_PROTOCOL)
    by_length = {
        row["length"]: row
        for row in rows_with_most_tokens(rows)
        if (row["data"], row["split"], row["swap"], row["protocol"]) == validation_key
        and row.get("at_tokens") is None
        and row.get("perplexity") is not None  # None if too large for a float
    }
    train_length = config.train_length
    summary = {
        f"ppl@{describe_lengths([length], train_length)[0]}": row["perplexity"]
        for length, row in by_length.items()
    }
    if at_train_length := by_length.get(train_length):
        budget = budget_key(at_train_length)
        longest = by_length[max(n for n, row in by_length.items() if budget_key(row) == budget)]
        if longest["length"] > train_length:
            ratio = longest["perplexity"] / at_train_length["perplexity"]
            summary[RATIO_KEY] = ratio
    return summary


def _costs(directory: RunDirectory) -> dict[str, float]:
    timing = directory.timing()
    quantities = [QUANTITIES[name] for name in COST_QUANTITIES] if timing else []
    return {f"cost/{q.name}": q.scale.to_unit(q.read(timing)) for q in quantities}


def _benchmarks(directory: RunDirectory, config: DictConfig) -> dict[str, float]:
    """Return the experiment's `posenc bench` results for the run's setup.

    The setup is the encoding, model, training length, precision and kernel; results for kernel=auto
    match every kernel.
    """
    file = experiment_folder(directory) / "bench" / "bench.json"
    encoding, model = (OmegaConf.to_container(config[key]) for key in ("encoding", "model"))
    run_key = [encoding, model, config.train_length, config.precision]
    measured_keys = ("encoding_config", "model_config", "length", "precision")
    return {
        f"bench/{row['pass']}_{name}": row[name]
        for row in read_rows(file, BENCHMARK_TYPES)
        if [row[key] for key in measured_keys] == run_key
        and row["kernel"] in ("auto", config.kernel)
        for name in BENCHMARK_METRICS
        if row[name] is not None
    }
