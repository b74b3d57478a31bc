"""How much of a run's work is training, for its progress."""

from omegaconf import DictConfig

from posenc.config.settings import evaluation_lengths
from posenc.model.flops import BACKWARD, forward_flops


def training_share(config: DictConfig, tokens: int) -> float:
    """Training's part of the floating-point work, with `tokens` scored at every length."""
    training = (1 + BACKWARD) * config.tokens * _per_token(config, config.train_length)
    evaluating = sum(tokens * _per_token(config, length) for length in evaluation_lengths(config))
    return training / (training + evaluating)


def _per_token(config: DictConfig, length: int) -> int:
    """Operations of a forward pass, as if a tied model had nothing but matrices."""
    layers, width = config.model.layers, config.model.width
    return forward_flops(config.frozen.parameters, layers, width, length)
