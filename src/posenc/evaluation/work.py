"""How much of a run's work is training, for its progress."""

from collections.abc import Iterable

from omegaconf import DictConfig

from posenc.evaluation.request import Request
from posenc.model.flops import BACKWARD, forward_flops


def training_fraction(config: DictConfig, requests: Iterable[Request]) -> float:
    """Training's part of the floating-point work, with these measurements after it."""
    training = (1 + BACKWARD) * config.tokens * _per_token(config, config.train_length)
    evaluating = sum(asked.tokens * _per_token(config, asked.length) for asked in requests)
    return training / (training + evaluating)


def _per_token(config: DictConfig, length: int) -> int:
    """Operations of a forward pass, as if a tied model had nothing but matrices."""
    layers, width = config.model.layers, config.model.width
    return forward_flops(config.frozen.parameters, layers, width, length)
