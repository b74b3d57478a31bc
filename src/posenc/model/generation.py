"""Token generation, with a KV cache for the models and encodings that support it.

Positional information may enter a model through several hooks, some of which need the whole
sequence: xPos, for example, counts positions from the middle of the sequence. The cache therefore
holds what each layer computes before its encoding is applied, and for each new token the hooks are
called on the whole sequence. This takes O(T) time per token and layer instead of O(T^2). The result
is the same as without a cache, at any length, if no token depends on later tokens or on their
number (`causal` and `prefix_consistent`).
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn

from posenc.attention.reference import AttentionInputs, attend_rows
from posenc.encodings.base import Encoding
from posenc.encodings.frequencies import SinusoidalFrequencies
from posenc.model.block import Block
from posenc.model.transformer import Decoder

LIBRARIES = ("posenc.", "torch.")


class LayerCache(NamedTuple):
    """The input x [B, T, D] of a layer's attention and its q, k and v [B, H, T, d], unrotated."""

    x: Tensor
    q: Tensor
    k: Tensor
    v: Tensor


class IncrementalDecoder:
    """Extends a sequence [B, T] of tokens; `append` returns the logits of the next token.

    Keys and values are cached unless `cache_unsupported_reason` returns a reason; in that case,
    every prediction reprocesses the whole sequence. The model should be in evaluation mode.
    """

    def __init__(self, model: Decoder) -> None:
        self.model = model
        self.use_cache = cache_unsupported_reason(model) is None
        self.tokens = torch.empty(0, 0, dtype=torch.long, device=model.device)
        self._layers: list[LayerCache] = []

    @torch.no_grad()
    def append(self, tokens: Tensor) -> Tensor:
        """Append tokens [B, n] and return the logits [B, vocab_size] of the token that follows."""
        start = self.tokens.shape[1]
        self.tokens = torch.cat([self.tokens, tokens], dim=1) if start else tokens
        hidden = self._extend(start) if self.use_cache else self.model.hidden_states(self.tokens)
        return self.model.head(hidden[:, -1:])[:, 0]

    def _extend(self, start: int) -> Tensor:
        """Return the final hidden states [B, n, D] of the tokens from `start` on."""
        model, length = self.model, self.tokens.shape[1]
        pos = model.encoding.positions(length, self.tokens.device)
        embedded = model.embedding(self.tokens) * model.embedding_scale
        x = model.encoding.embed(embedded, pos)[:, start:]
        layers = []
        for index, block in enumerate(model.blocks):
            assert isinstance(block, Block)
            normed = block.attention_norm(x)
            layer = LayerCache(normed, *block.attention.project(normed))
            if start:
                pairs = zip(self._layers[index], layer, strict=True)
                layer = LayerCache(*(torch.cat(pair, dim=-2) for pair in pairs))
            layers.append(layer)
            attended = _attend_last(block, model.encoding.at_layer(index), layer, pos, start)
            x = block.add_feed_forward(x + block.attention.project_output(attended))
        self._layers = layers
        return model.norm(x)


def _attend_last(
    block: Block, encoding: Encoding, layer: LayerCache, pos: Tensor, start: int
) -> Tensor:
    """Return the attention output [B, H, n, d] for the tokens from `start` on."""
    x, q, k, v = layer
    q, k = encoding.rotate(x, q, k, pos)
    with torch.autocast(x.device.type, enabled=False):
        if not start:
            return block.attention.attend(encoding, x, q, k, v, pos)
        length = q.shape[2]
        inputs = AttentionInputs(x, q, k, v, pos)
        return attend_rows(encoding, inputs, slice(start, length), slice(0, length))


def cache_unsupported_reason(model: nn.Module) -> str | None:
    """Return why keys and values cannot be reused when the sequence grows, or None if they can.

    They can be reused with posenc's own models and encodings if no token depends on later tokens or
    on how many there are, which posenc's tests verify. Other models may compute something else from
    the same layers, and other encodings have not been verified beyond the training length.
    """
    for module in model.modules():
        definition: Callable[..., object] = type(module)
        if isinstance(module, SinusoidalFrequencies):
            definition = module.spectrum
            while isinstance(definition, partial):
                definition = definition.func
        if not definition.__module__.startswith(LIBRARIES):
            return f"{definition.__module__}.{definition.__qualname__} is not part of posenc"
        if not isinstance(module, Encoding):
            continue
        for limitation in ("causal", "prefix_consistent"):
            if limitation in module.limitations:
                return module.limitations[limitation]
    return None


@torch.no_grad()
def generate(
    model: Decoder, prompt: Tensor, num_tokens: int, temperature: float, seed: int
) -> Iterator[int]:
    """Yield `num_tokens` tokens that continue the prompt [T].

    They are drawn from softmax(logits / temperature), or are the most likely tokens if
    `temperature` is 0. The same seed gives the same tokens.
    """
    generator = torch.Generator().manual_seed(seed)
    decoder, new_tokens = IncrementalDecoder(model), prompt[None]
    for _ in range(num_tokens):
        logits = decoder.append(new_tokens)[0].double().cpu()
        if temperature == 0:
            token = logits.argmax()
        else:
            logits = logits - logits.max()  # so that a tiny temperature does not overflow
            probabilities = (logits / temperature).softmax(dim=-1)
            token = torch.multinomial(probabilities, 1, generator=generator)[0]
        new_tokens = token.to(model.device).view(1, 1)
        yield int(token)
