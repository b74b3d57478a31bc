"""The protocols: each says which windows are read at a length, and which targets are scored.

A protocol is a module with a function `(data, config, length) -> Windows`, a line below, and its
name with its knob in `posenc.config.settings.PROTOCOLS`.
"""

from collections.abc import Callable
from dataclasses import dataclass

from omegaconf import DictConfig

from posenc.data.dataset import Dataset
from posenc.evaluation.protocols.fixed_target import fixed_target
from posenc.evaluation.protocols.last_k import last_k
from posenc.evaluation.protocols.nonoverlapping import nonoverlapping
from posenc.evaluation.protocols.sliding import sliding
from posenc.evaluation.protocols.tasks import tasks
from posenc.evaluation.score import Score, losses, losses_and_hits
from posenc.evaluation.windows import Windows


@dataclass(frozen=True)
class Protocol:
    """Protocols of equal windows and scores share one measurement.

    `positions` says that the loss at each position in the window is kept beside the row.
    """

    windows: Callable[[Dataset, DictConfig, int], Windows]
    score: Score = losses
    positions: bool = False


PROTOCOLS = {
    "nonoverlapping": Protocol(nonoverlapping),
    "by_position": Protocol(nonoverlapping, positions=True),
    "sliding": Protocol(sliding),
    "last_k": Protocol(last_k),
    "fixed_target": Protocol(fixed_target),
    "tasks": Protocol(tasks, score=losses_and_hits),
}
