"""The floating-point operations (FLOPs) of a model; a multiply-add counts as two.

Per token, the forward pass costs 2 FLOPs for every matrix weight in the blocks and the output head
(the embedding is a lookup), and 2 T D FLOPs in the attention of each layer, for q . k and
weights . v over the T/2 keys that a token attends to on average. The backward pass costs twice as
much. Positional encodings, softmax, norms and recomputation are not counted, so the count is the
same for all encodings.

Other conventions differ. PaLM (2204.02311, appendix B), nanoGPT, llm-foundry and Megatron
(2104.04473) count all T keys, which gives 4 T D; at T = 2 D this is 1.14 times our count for a
layer with a feed-forward width of 4 D. Kaplan et al. (2001.08361) do not count the logits. FLOP
utilization can only be compared under the same convention.
"""

from posenc.model.transformer import Decoder

BACKWARD_FACTOR = 2
"""The FLOPs of the backward pass divided by the FLOPs of the forward pass."""


def model_flops(model: Decoder, length: int) -> int:
    """Return the FLOPs per token of a forward pass over windows of `length` tokens.

    For an adaptive softmax, only the first softmax is counted; few tokens need the others.
    """
    matrices = [p for p in model.blocks.parameters() if p.ndim == 2]
    weights = sum(p.numel() for p in [*matrices, model.head.weight])
    geometry = model.encoding.geometry
    return forward_flops(weights, geometry.layers, geometry.width, length)


def forward_flops(weights: int, layers: int, width: int, length: int) -> int:
    """Return the FLOPs per token of a forward pass with `weights` matrix weights."""
    return 2 * weights + 2 * layers * width * length
