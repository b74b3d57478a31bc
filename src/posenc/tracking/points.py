"""What a run looks like on a dashboard: its flat configuration, its curves, its summary."""

import hashlib
import re
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from posenc.record.rundir import RunDirectory

ID_LENGTH = 64
MAIN_PROTOCOL = "nonoverlapping"
MAIN_SPLIT = "validation"


def experiment_folder(run: RunDirectory) -> Path:
    """The folder of the run's experiment, by its whole path, wherever posenc was called from."""
    return run.path.resolve().parent


def run_id(run: RunDirectory) -> str:
    """`<experiment folder>.<run>`, the same at every start; W&B takes 64 characters of [\\w.-].

    A name that does not fit is cut and marked with a digest of the whole, so that no two meet.
    """
    whole = f"{experiment_folder(run).name}.{run.name}"
    fitting = re.sub(r"[^A-Za-z0-9_.-]", "-", whole)
    if fitting == whole and len(whole) <= ID_LENGTH:
        return whole
    digest = hashlib.sha256(whole.encode()).hexdigest()[:8]
    return f"{fitting[: ID_LENGTH - len(digest) - 1]}-{digest}"


def run_config(run: RunDirectory, config: DictConfig) -> dict[str, Any]:
    """Flat keys to filter and group by, and the whole configuration under `config`."""
    names = {group: config.choices[group] for group in ("encoding", "model", "data")}
    flat = ("train_length", "seed", "tokens", "batch_tokens", "precision")
    return {
        **names,
        **{key: config[key] for key in flat},
        "parameters": config.frozen.parameters,
        "run": run.name,
        "experiment": experiment_folder(run).name,
        "config": OmegaConf.to_container(config, resolve=True),
    }


def training_point(row: dict[str, Any]) -> dict[str, Any]:
    """A row of `metrics.jsonl` under W&B's names."""
    point = {
        "step": row["step"],
        "tokens": row["tokens"],
        "train/loss": row["loss"],
        "train/learning_rate": row["learning_rate"],
    }
    if "validation_loss" in row:
        point["validation/loss"] = row["validation_loss"]
    return point


def curve_point(row: dict[str, Any], config: DictConfig) -> dict[str, Any]:
    """A row of `evaluation.json` as a point of its curve, which is named by how it differs.

    The run's own validation text gives `extrapolation/<protocol>/...`; another corpus, another
    split or a swap put their names before the protocol, which a stride follows.
    """
    other_data = row["data_name"] if row["data"] != config.frozen.fingerprint else None
    other_split = row["split"] if row["split"] != MAIN_SPLIT else None
    swap = row["swap"] and row["swap"].replace(" ", "-")
    stride = "" if row["stride"] is None else f"-{row['stride']}"
    parts = [other_data, other_split, swap, f"{row['protocol']}{stride}"]
    curve = "/".join(["extrapolation", *(part for part in parts if part)])
    said = [name for name in ("perplexity", "loss", "accuracy", "exact") if name in row]
    return {"extrapolation/length": row["length"], **{f"{curve}/{n}": row[n] for n in said}}


def run_summary(
    points: list[dict[str, Any]], rows: list[dict[str, Any]], config: DictConfig
) -> dict[str, Any]:
    """The last value of every training series, and the curve's.

    W&B replaces the summary as a whole when a later offline fragment of a run is uploaded, so
    each has to hold all of it.
    """
    last: dict[str, Any] = {}
    for point in points:
        last |= point
    return {**last, **curve_summary(rows, config)}


def curve_summary(rows: list[dict[str, Any]], config: DictConfig) -> dict[str, float]:
    """`perplexity@<length>` on the run's own validation text, and `extrapolation_ratio`.

    The ratio is the perplexity at the longest length over that at the training length.
    """
    main = (config.frozen.fingerprint, MAIN_SPLIT, None, MAIN_PROTOCOL)
    perplexity = {
        row["length"]: row["perplexity"]
        for row in rows
        if (row["data"], row["split"], row["swap"], row["protocol"]) == main
    }
    summary = {f"perplexity@{length}": value for length, value in perplexity.items()}
    longest = max(perplexity, default=0)
    if config.train_length in perplexity and longest > config.train_length:
        summary["extrapolation_ratio"] = perplexity[longest] / perplexity[config.train_length]
    return summary
