"""The floating-point work of training."""

from typing import cast

from omegaconf import DictConfig
from torch import nn

from posenc.model.decoder import Decoder
from posenc.model.flops import BACKWARD, forward_flops, matrix_parameters


def training_flops(config: DictConfig, model: Decoder) -> int:
    """Operations per token, forward and backward.

    Of an adaptive softmax the bands of rare words are left out, which few tokens meet.
    """
    head = cast(nn.Linear, model.head)  # `weight` is all that is looked at
    matrices = matrix_parameters(model.blocks, head)
    given = config.model.layers, config.model.width, config.train_length
    return (1 + BACKWARD) * forward_flops(matrices, *given)
