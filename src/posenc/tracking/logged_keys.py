"""The metric and configuration keys that runs log to W&B, determined from their run directories."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from omegaconf import DictConfig

from posenc.config.errors import RunError
from posenc.runs.run_directory import RunDirectory, list_runs
from posenc.tracking.mirror_file import MirrorFile
from posenc.tracking.upload import report_figures
from posenc.tracking.wandb_config import run_config, variant
from posenc.tracking.wandb_history import (
    EVALUATION_AXES,
    evaluation_history,
    swap_curves,
    swap_rows,
    training_row,
)
from posenc.tracking.wandb_media import IMAGE_KEY, SWAP_TABLE_KEY, TABLE_KEY
from posenc.tracking.wandb_summary import MAIN_PROTOCOL, run_summary


@dataclass(frozen=True)
class LoggedKeys:
    """Keys of W&B's history, summary, configuration and media, and of the report's figures.

    `encoding_key` is the configuration key that distinguishes the encodings of the experiment.
    `swaps` maps each curve with a swap to the same curve without it.
    """

    history: tuple[str, ...]
    summary: tuple[str, ...]
    config: tuple[str, ...]
    media: tuple[str, ...]
    figures: tuple[str, ...]
    train_lengths: tuple[int, ...]
    encoding_key: str
    swaps: Mapping[str, str]

    def curve_keys(self, prefix: str, suffix: str) -> list[list[str]]:
        """Return the history keys `<prefix>...<suffix>`, one list per panel.

        The main protocol comes first. Curves that differ only in their swap share a panel, which
        also shows the curve without a swap.
        """
        keys = [key for key in self.history if key.startswith(prefix) and key.endswith(suffix)]
        keys.sort(key=lambda key: (key.count("/"), MAIN_PROTOCOL not in key, key))
        panels = {key: [key] for key in keys if key.rpartition("/")[0] not in self.swaps}
        with_swaps: dict[str, list[str]] = {}
        for key in keys:
            curve, _, metric = key.rpartition("/")
            if curve in self.swaps:
                without_swap = f"{self.swaps[curve]}/{metric}"
                with_swaps.setdefault(without_swap, panels.get(without_swap, [])[:]).append(key)
        return [*panels.values(), *with_swaps.values()]


def corrupt_records(folder: Path) -> dict[str, str]:
    """Return, by name, why the evaluation or W&B record of a run cannot be read."""
    reasons = {}
    for run in list_runs(folder):
        try:
            run.rows()
            MirrorFile(run)
        except RunError as error:
            reasons[run.name] = str(error)
    return reasons


def read_logged_keys(folder: Path, corrupt: Collection[str] = ()) -> LoggedKeys:
    """Return the keys that `posenc sync` uploads for the evaluated runs in `folder`.

    `corrupt` holds the names of runs to skip.
    """
    runs = [run for run in list_runs(folder) if run.name not in corrupt and run.rows()]
    configs = [run.config() for run in runs]
    encodings = {config.choices.encoding for config in configs}
    one_variant_per_encoding = len({variant(config) for config in configs}) == len(encodings)
    pairs = list(zip(runs, configs, strict=True))
    has_positions = any(run.positions_file.exists() for run in runs)
    return LoggedKeys(
        history=_history_keys(pairs),
        summary=tuple(dict.fromkeys(key for pair in pairs for key in run_summary(*pair))),
        config=tuple(dict.fromkeys(key for pair in pairs for key in _config_keys(*pair))),
        media=((TABLE_KEY, IMAGE_KEY) if has_positions else ())
        + ((SWAP_TABLE_KEY,) if any(swap_rows(run.rows()) for run in runs) else ()),
        figures=tuple(report_figures(folder)),
        train_lengths=tuple(sorted({config.train_length for config in configs})),
        encoding_key="encoding" if one_variant_per_encoding else "variant",
        swaps={
            curve: without_swap
            for run, config in pairs
            for curve, without_swap in swap_curves(run.rows(), config).items()
        },
    )


def _config_keys(run: RunDirectory, config: DictConfig) -> list[str]:
    flat_keys = (key for key in run_config(run, config) if key != "config")
    return [*flat_keys, *MirrorFile(run).git]


def _history_keys(pairs: Sequence[tuple[RunDirectory, DictConfig]]) -> tuple[str, ...]:
    keys: dict[str, None] = {}
    for run, config in pairs:
        rows = [training_row(row) for row in run.metrics()]
        results = run.rows()
        rows += evaluation_history(results, run.losses_by_position(results), config)
        keys |= {key: None for row in rows for key in row if key not in EVALUATION_AXES}
    return tuple(keys)
