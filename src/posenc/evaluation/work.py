"""How much of a run's work is training, for its progress."""

from omegaconf import DictConfig

from posenc.config.settings import evaluation_lengths


def training_share(config: DictConfig, tokens: int) -> float:
    """Training's part of the floating-point work, with `tokens` scored at every length.

    A token costs about 12 layers width^2 multiplications in the blocks and layers x length x
    width in causal attention; training does three times a forward pass.
    """
    training = 3 * config.tokens * _per_token(config, config.train_length)
    evaluating = sum(tokens * _per_token(config, length) for length in evaluation_lengths(config))
    return training / (training + evaluating)


def _per_token(config: DictConfig, length: int) -> float:
    width, layers = config.model.width, config.model.layers
    return layers * width * (12 * width + length)
