"""The numbers that a run's line in a dashboard's table has."""

from collections.abc import Mapping
from typing import Any

from omegaconf import DictConfig, OmegaConf

from posenc.claims.quantities import QUANTITIES
from posenc.runs.files import read_json, read_lines
from posenc.runs.run_directory import RunDirectory
from posenc.tracking.identity import experiment_folder
from posenc.tracking.points import MAIN_SPLIT, training_point

MAIN_PROTOCOL = "nonoverlapping"
COSTS = ("training_tokens_per_second", "training_memory_mb")
BENCHED = ("tokens_per_second", "peak_memory_mb", "utilisation")


def run_summary(directory: RunDirectory, config: DictConfig) -> dict[str, Any]:
    """The last value of every training series, the curve's, what training cost, the bench row.

    W&B replaces the summary as a whole when a later offline fragment of a run is uploaded, so
    each has to hold all of it.
    """
    last: dict[str, Any] = {}
    for row in directory.metrics():
        last |= training_point(row)
    return {
        **last,
        **curve_summary(directory.rows(), config),
        **_costs(directory),
        **_bench(directory, config),
    }


def curve_summary(rows: list[dict[str, Any]], config: DictConfig) -> dict[str, float]:
    """`ppl@L`, `ppl@2L`, `ppl@L+50`, ... on the run's own validation text; `extrapolation_ratio`.

    The ratio is the perplexity at the longest length over that at the training length.
    """
    main = (config.frozen.fingerprint, MAIN_SPLIT, None, MAIN_PROTOCOL)
    perplexity = {
        row["length"]: row["perplexity"]
        for row in rows
        if (row["data"], row["split"], row["swap"], row["protocol"]) == main
    }
    length = config.train_length
    summary = {f"ppl@{span(at, length)}": value for at, value in perplexity.items()}
    longest = max(perplexity, default=0)
    if length in perplexity and longest > length:
        summary["extrapolation_ratio"] = perplexity[longest] / perplexity[length]
    return summary


def span(length: int, train_length: int) -> str:
    """A length told by the training length: `L`, `2L`, or `L+50` where it is no multiple."""
    if length % train_length:
        return f"L{length - train_length:+}"
    return "L" if length == train_length else f"{length // train_length}L"


def _costs(directory: RunDirectory) -> dict[str, float]:
    timing = read_lines(directory.timing_file)
    told = [QUANTITIES[name] for name in COSTS] if timing else []
    return {f"cost/{quantity.name}": quantity.shown(quantity.read(timing)) for quantity in told}


def _bench(directory: RunDirectory, config: DictConfig) -> dict[str, float]:
    """`bench/<pass>_...` from a benchmark in the experiment's folder of this encoding and model."""
    file = experiment_folder(directory) / "bench" / "bench.json"
    rows = read_json(file)["rows"] if file.exists() else []
    return {
        f"bench/{row['pass']}_{name}": row[name]
        for row in rows
        if _is_of(row, config)
        for name in BENCHED
        if row[name] is not None
    }


def _is_of(row: Mapping[str, Any], config: DictConfig) -> bool:
    encoding, model = (OmegaConf.to_container(config[key]) for key in ("encoding", "model"))
    return (
        row["encoding_config"],
        row["model_config"],
        row["length"],
        row["precision"],
    ) == (encoding, model, config.train_length, config.precision) and row["kernel"] in (
        "auto",
        config.kernel,
    )
