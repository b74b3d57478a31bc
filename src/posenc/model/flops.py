"""The floating-point operations (FLOPs) of a model; a multiply-add counts as two.

Per token, the forward pass costs 2 FLOPs for every matrix weight in the blocks and the output head
(the embedding is a lookup), and 2 T D FLOPs in the attention of each layer, for q . k and
weights . v over the T/2 keys that a token attends to on average. The backward pass costs twice as
much. Positional encodings, softmax, norms and recomputation are not counted, so the count is the
same for all encodings.

Other conventions differ. PaLM (arXiv:2204.02311, appendix B), nanoGPT, llm-foundry and Megatron
(arXiv:2104.04473) count all T keys, which gives 4 T D; at T = 2 D, the total is 1.14 times ours for
a layer with a feed-forward width of 4 D. Kaplan et al. (arXiv:2001.08361) do not count the logits.
FLOP utilization can only be compared under the same convention.
"""

from collections.abc import Iterator

from torch import nn

from posenc.model.transformer import Decoder

BACKWARD_FACTOR = 2
"""The FLOPs of the backward pass divided by the FLOPs of the forward pass."""


def model_flops(model: Decoder, length: int) -> int:
    """Return the FLOPs per token of a forward pass over windows of `length` tokens.

    For an adaptive softmax, only the first softmax is counted; few tokens need the others. The
    projections of an adaptive embedding are not counted.
    """
    weights = sum(_matrix_sizes(model.blocks)) + model.head.weight.numel()
    geometry = model.encoding.geometry
    return forward_flops(weights, geometry.layers, geometry.width, length)


def forward_flops(weights: int, layers: int, width: int, length: int) -> int:
    """Return the FLOPs per token of a forward pass with `weights` matrix weights."""
    return 2 * weights + 2 * layers * width * length


def evaluation_flops(model: Decoder, length: int, tokens: int, num_scored: int) -> int:
    """Return the FLOPs of scoring `num_scored` of `tokens` tokens in windows of `length` tokens.

    Nothing after the last attention is computed for tokens that are not scored.
    """
    last = model.get_submodule(f"blocks.{len(model.blocks) - 1}.feed_forward")
    skipped = sum(_matrix_sizes(last)) + model.head.weight.numel()
    return model_flops(model, length) * tokens - 2 * skipped * (tokens - num_scored)


def _matrix_sizes(module: nn.Module) -> Iterator[int]:
    return (p.numel() for p in module.parameters() if p.ndim == 2)
