"""Floating-point operations of a model, by one convention; a multiply-add counts as two.

A token costs, forward, 2 for every weight of a matrix that it is multiplied with (those of the
blocks and the output head, an embedding is looked up) and 2 T D in every layer's attention: q . k
and weights . v over the T/2 keys that it sees on average. Backward costs twice as much. Nothing
is counted for position, for softmax and norms, nor for what a backward pass computes again, so
that every encoding on one model is held to the same number.

Others differ: PaLM (2204.02311, appendix B), nanoGPT, llm-foundry and Megatron (2104.04473) count
all T keys, 4 T D, which at T = 2 D makes 1.14 times as much of a layer with D x 4 D feed-forwards;
Kaplan et al. (2001.08361) count no logits. Compare utilisations of one convention alone.
"""

from typing import cast

from torch import nn

from posenc.model.decoder import Decoder

BACKWARD = 2
"""Backward's operations for each of the forward pass."""


def model_flops(model: Decoder, length: int) -> int:
    """Operations per token of a model's forward pass over windows of `length` tokens.

    Of an adaptive softmax the bands of rare words are left out, which few tokens meet.
    """
    matrices = [p for p in model.blocks.parameters() if p.ndim == 2]
    head = cast(nn.Linear, model.head)  # `weight` is all that is looked at
    weights = sum(p.numel() for p in [*matrices, head.weight])
    host = model.encoding.geometry
    return forward_flops(weights, host.layers, host.width, length)


def forward_flops(matrices: int, layers: int, width: int, length: int) -> int:
    """Operations per token, forward, of `matrices` weights and of attention in `layers`."""
    return 2 * matrices + 2 * layers * width * length
