"""How much of a run's work is training, for its progress."""

from collections.abc import Iterable

from omegaconf import DictConfig

from posenc.evaluation.request import Request


def training_share(config: DictConfig, requests: Iterable[Request]) -> float:
    """Training's part of the floating-point work, with these measurements after it.

    A token costs about 12 layers width^2 multiplications in the blocks and layers x length x
    width in causal attention; training does three times a forward pass.
    """
    training = 3 * config.tokens * _per_token(config, config.train_length)
    evaluating = sum(asked.tokens * _per_token(config, asked.length) for asked in requests)
    return training / (training + evaluating)


def _per_token(config: DictConfig, length: int) -> float:
    width, layers = config.model.width, config.model.layers
    return layers * width * (12 * width + length)
