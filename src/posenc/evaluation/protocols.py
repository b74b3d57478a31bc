"""The evaluation protocols: the windows at each evaluation length and the targets scored in them.

A protocol for text has a function `(num_tokens, length, ...) -> spans`, in `PROTOCOLS`;
`num_tokens` and `length` are the numbers of tokens in the split and in a window. Spans are int64
[n, 3]: (start, first_scored, stop) of each window, in which the targets from first_scored to
stop - 1 are scored. The module does not import torch, so that reports can import it quickly.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from omegaconf import DictConfig

from posenc.config.errors import ConfigError
from posenc.config.settings import evaluation_lengths


def nonoverlapping(num_tokens: int, length: int) -> NDArray[np.int64]:
    """Return consecutive windows of `length` tokens and the shorter tail; every token is scored.

    Press et al. (2022), section 2.2; equivalent to fairseq's `--context-window 0` with
    `--sample-break-mode none`.
    """
    start = np.arange(0, num_tokens, length)
    return np.stack([start, start, np.minimum(start + length, num_tokens)], axis=1)


def sliding(num_tokens: int, length: int, stride: int) -> NDArray[np.int64]:
    """Return windows that advance by `stride` tokens; only the new tokens of each are scored.

    Press et al. (2022), appendix B. The targets from b * stride to (b + 1) * stride - 1 are scored
    in one window, the first of them with length - stride + 1 tokens of context, or fewer near the
    start of the text: fairseq's `--context-window C` with C = length - stride. All tokens whose
    context reaches the start of the text are scored in one window. stride=1 is the paper's S = 1;
    stride=length is nonoverlapping.
    """
    first = np.concatenate(([0], np.arange(length - length % stride, num_tokens, stride)))
    stop = np.append(first[1:], num_tokens)
    return np.stack([np.maximum(first - (length - stride), 0), first, stop], axis=1)


def last_k(num_tokens: int, length: int, k: int) -> NDArray[np.int64]:
    """Return consecutive windows whose last `k` targets are scored.

    These have more than length - k tokens of context. Different lengths score different tokens, and
    longer windows score fewer. The tail, which is shorter than a window, is left out.
    """
    stop = np.arange(length, num_tokens + 1, length)
    return np.stack([stop - length, stop - k, stop], axis=1)


def fixed_target(
    num_tokens: int, length: int, targets: int, longest_length: int
) -> NDArray[np.int64]:
    """Return windows that end where those of `longest_length` end; their last `targets` are scored.

    The scored tokens do not depend on the length, so if the loss decreases with length, the longer
    context must be the reason. Only complete windows of `longest_length` are used.
    """
    stop = np.arange(longest_length, num_tokens + 1, longest_length)
    return np.stack([stop - length, stop - targets, stop], axis=1)


@dataclass(frozen=True)
class EvaluationProtocol:
    """A protocol: `spans` returns the spans of a split with a given number of tokens.

    `parameter` is the key in `evaluation` that sets how many targets are scored in a window, and
    the name of the argument of `spans` that receives it. With `needs_longest_length`, `spans` also
    receives the longest evaluation length. With `save_position_losses`, the loss at each position
    is saved. `spans` is None for tasks.
    """

    spans: Callable[..., NDArray[np.int64]] | None
    parameter: str | None = None
    needs_longest_length: bool = False
    save_position_losses: bool = False


PROTOCOLS = {
    "nonoverlapping": EvaluationProtocol(nonoverlapping),
    "by_position": EvaluationProtocol(nonoverlapping, save_position_losses=True),
    "sliding": EvaluationProtocol(sliding, "stride"),
    "last_k": EvaluationProtocol(last_k, "k"),
    "fixed_target": EvaluationProtocol(fixed_target, "targets", needs_longest_length=True),
    "tasks": EvaluationProtocol(None),
}
NONOVERLAPPING_PROTOCOLS = tuple(
    name for name, protocol in PROTOCOLS.items() if protocol.spans is nonoverlapping
)
"""The protocols with consecutive windows, in which every token is scored once at every length."""


def check_protocols(config: DictConfig) -> None:
    """Raise ConfigError if `evaluation.protocols` or a parameter of one of them is invalid.

    Each protocol needs its parameter, each parameter needs its protocol, and no parameter may
    exceed the shortest evaluation length.
    """
    evaluation, errors = config.evaluation, []
    if not evaluation.protocols:
        errors.append(f"evaluation.protocols is empty (available: {', '.join(PROTOCOLS)})")
    if unknown := sorted(set(evaluation.protocols) - set(PROTOCOLS)):
        errors.append(
            f"evaluation.protocols has unknown protocols: {', '.join(unknown)} (available:"
            f" {', '.join(PROTOCOLS)})"
        )
    names = list(evaluation.protocols)
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        errors.append(f"evaluation.protocols has duplicates: {', '.join(repeated)}")
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
            f"{key}={value} exceeds the shortest evaluation length {shortest}; use"
            f" {shortest} or less, or longer evaluation lengths"
        ]
    return []
