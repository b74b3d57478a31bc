"""Floating-point operations of a model; a multiply-add counts as two.

The forward pass costs, per token, 2 for every weight of a matrix that the token is multiplied
with (blocks and output head; the embedding is a lookup), and 2 T D in the attention of each
layer: q . k and weights . v over the T/2 keys that a token sees on average. The backward pass
costs twice as much. Positional encodings, softmax, norms and recomputation are not counted, so
that all encodings of one model are compared at the same number.

Other conventions differ: PaLM (2204.02311, appendix B), nanoGPT, llm-foundry and Megatron
(2104.04473) count all T keys, 4 T D, which at T = 2 D gives 1.14 times as much for a layer with
D x 4 D feed-forwards; Kaplan et al. (2001.08361) count no logits. Utilisations are comparable
only under the same convention.
"""

from typing import cast

from torch import nn

from posenc.model.transformer import Decoder

BACKWARD = 2
"""Operations of the backward pass for each of the forward pass."""


def model_flops(model: Decoder, length: int) -> int:
    """Return the operations per token of the forward pass over windows of `length` tokens.

    The bands of rare words of an adaptive softmax are left out: few tokens reach them.
    """
    matrices = [p for p in model.blocks.parameters() if p.ndim == 2]
    head = cast(nn.Linear, model.head)  # only its `weight` is read
    weights = sum(p.numel() for p in [*matrices, head.weight])
    geometry = model.encoding.geometry
    return forward_flops(weights, geometry.layers, geometry.width, length)


def forward_flops(weights: int, layers: int, width: int, length: int) -> int:
    """Return the operations per token of a forward pass with `weights` matrix weights."""
    return 2 * weights + 2 * layers * width * length
