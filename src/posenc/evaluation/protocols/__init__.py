"""The evaluation protocols: the windows at each evaluation length and the targets scored in them.

A protocol for text is a function `(tokens, length, ...) -> spans` in its own module, listed in
`PROTOCOLS`. Spans are int64 [n, 3]: (start, first_scored, stop) of each window, in which the
targets from first_scored to stop - 1 are scored. Only the module `tasks` imports torch, so reports
can list the protocols without it.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from omegaconf import DictConfig

from posenc.config.errors import ConfigError
from posenc.config.settings import evaluation_lengths
from posenc.evaluation.protocols.fixed_target import fixed_target
from posenc.evaluation.protocols.last_k import last_k
from posenc.evaluation.protocols.nonoverlapping import nonoverlapping
from posenc.evaluation.protocols.sliding import sliding


@dataclass(frozen=True)
class Protocol:
    """A protocol: `spans` returns the spans of a split with a given number of tokens.

    `parameter` is the key in `evaluation` that sets how many targets are scored in a window, and
    the name of the argument of `spans` that receives it. With `needs_longest_length`, `spans` also
    receives the longest evaluation length. With `save_positions`, the loss at each position is
    saved. With `accuracy`, the targets that the model ranks first are counted. `spans` is None for
    tasks.
    """

    spans: Callable[..., NDArray[np.int64]] | None
    parameter: str | None = None
    needs_longest_length: bool = False
    save_positions: bool = False
    accuracy: bool = False


PROTOCOLS = {
    "nonoverlapping": Protocol(nonoverlapping),
    "by_position": Protocol(nonoverlapping, save_positions=True),
    "sliding": Protocol(sliding, "stride"),
    "last_k": Protocol(last_k, "k"),
    "fixed_target": Protocol(fixed_target, "targets", needs_longest_length=True),
    "tasks": Protocol(None, accuracy=True),
}
NONOVERLAPPING_PROTOCOLS = tuple(
    name for name, protocol in PROTOCOLS.items() if protocol.spans is nonoverlapping
)
"""The protocols with consecutive windows, in which every token is scored once at every length."""


def check_protocols(config: DictConfig) -> None:
    """Raise ConfigError if `evaluation.protocols` or one of their parameters is invalid.

    Each protocol needs its parameter, each parameter needs its protocol, and no parameter may
    exceed the shortest evaluation length.
    """
    evaluation, errors = config.evaluation, []
    if not evaluation.protocols:
        errors.append(f"evaluation.protocols is empty (available: {', '.join(PROTOCOLS)})")
    if unknown := sorted(set(evaluation.protocols) - set(PROTOCOLS)):
        errors.append(
            f"evaluation.protocols: unknown protocol {', '.join(unknown)} (available:"
            f" {', '.join(PROTOCOLS)})"
        )
    for name, protocol in PROTOCOLS.items():
        if protocol.parameter is not None:
            errors += _parameter_errors(config, name, protocol.parameter)
    if errors:
        raise ConfigError("; ".join(errors))


def _parameter_errors(config: DictConfig, protocol: str, parameter: str) -> list[str]:
    key, value = f"evaluation.{parameter}", config.evaluation[parameter]
    requested, shortest = protocol in config.evaluation.protocols, evaluation_lengths(config)[0]
    if requested and value is None:
        return [f"{key} is missing, but the protocol {protocol} needs it; set {key}=..."]
    if value is not None and not requested:
        return [
            f"{key}={value} is only used by the protocol {protocol}, which is not in"
            f" evaluation.protocols; add it, or set {key}=null"
        ]
    if value is not None and value > shortest:
        return [
            f"{key}={value} is more than the shortest evaluation length {shortest}; use"
            f" {shortest} or less, or longer evaluation lengths"
        ]
    return []
