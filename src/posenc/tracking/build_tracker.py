"""Builds the tracker that `config.logger` selects; `logger=[wandb,csv]` combines several."""

from collections.abc import Sequence
from typing import Any

from omegaconf import DictConfig, OmegaConf

from posenc.config.components import build
from posenc.runs.run_directory import RunDirectory
from posenc.runs.trusted_code import is_trusted
from posenc.tracking.tracker import Inspection, JobType, Tracker
from posenc.tracking.wandb_tracker import WandbTracker


class CompositeTracker(Tracker):
    """Forwards every call to several trackers."""

    def __init__(self, trackers: Sequence[Tracker]) -> None:
        self.trackers = trackers

    def start(self, run: RunDirectory, config: DictConfig, job_type: JobType = "train") -> None:
        for tracker in self.trackers:
            tracker.start(run, config, job_type)

    def log(self, rows: list[dict[str, Any]]) -> None:
        for tracker in self.trackers:
            tracker.log(rows)

    def finish(self, failed: bool, error: str | None = None) -> None:
        for tracker in self.trackers:
            tracker.finish(failed, error)

    def log_inspection(self, inspection: Inspection) -> None:
        for tracker in self.trackers:
            tracker.log_inspection(inspection)


def build_tracker(config: DictConfig) -> Tracker:
    """Return the tracker of `config.logger`. Raises ConfigError if it cannot be built."""
    modules = list(config.modules)
    trackers = [
        build(node, name=name, modules=modules)
        for name, node in tracker_nodes(config.logger).items()
    ]
    return trackers[0] if len(trackers) == 1 else CompositeTracker(trackers)


def wandb_tracker(node: DictConfig) -> WandbTracker | None:
    """Return the W&B tracker in a node of the config group `logger`; None if it has none."""
    return next((build(node, name=name) for name, node in _wandb_nodes(node)), None)


def wandb_destination(node: DictConfig) -> str | None:
    """Return the mode, entity and project of the W&B tracker in a node of the group `logger`.

    Returns None if there is no W&B tracker, or if its mode is not online and it has no entity.
    """
    for _, tracker in _wandb_nodes(node):
        mode, entity = tracker.get("mode"), tracker.get("entity")
        if mode == "online" or entity is not None:
            return f"{mode} {entity}/{tracker.get('project')}"
    return None


def logs_to_trusted_destination(node: DictConfig) -> bool:
    """Return whether a `logger` node has no W&B destination, or one the user has trained with.

    A saved run may be from someone else, and must not decide whether and where it is uploaded.
    """
    destination = wandb_destination(node)
    return destination is None or is_trusted("destination", destination)


def reset_untrusted_destination(config: DictConfig) -> None:
    """Reset the W&B mode and entity of a saved run unless they are trusted.

    The mode then comes from WANDB_MODE (offline if that is not set), and the entity from
    WANDB_ENTITY (the default of the account if that is not set).
    """
    if not logs_to_trusted_destination(config.logger):
        for key, _ in _wandb_nodes(config.logger):
            OmegaConf.update(config, key, {"mode": None, "entity": None})


def _wandb_nodes(node: DictConfig) -> list[tuple[str, DictConfig]]:
    """Return the keys and the nodes of the W&B trackers in a node of the config group `logger`."""
    target = f"{WandbTracker.__module__}.{WandbTracker.__qualname__}"
    return [(key, t) for key, t in tracker_nodes(node).items() if t.get("_target_") == target]


def tracker_nodes(node: DictConfig) -> dict[str, DictConfig]:
    """Return the nodes of the trackers in a node of the config group `logger`, by their keys.

    `logger=wandb` and `logger=none` set the keys of the node itself; the other options each add one
    key to it, so that they can be combined.
    """
    inner = [key for key in node if OmegaConf.is_dict(node[key]) and "_target_" in node[key]]
    own = OmegaConf.masked_copy(node, [key for key in node if key not in inner])
    nodes = {"logger": own} if own or not inner else {}
    return nodes | {f"logger.{key}": node[key] for key in inner}
