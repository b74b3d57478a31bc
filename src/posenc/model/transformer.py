"""The decoder-only Transformer in which position enters only through the encoding's hooks."""

import hashlib
import random
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Literal, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from posenc.attention import KernelFunction
from posenc.attention.bias_cache import bias_cache
from posenc.encodings.base import Encoding
from posenc.model.block import Block, norm_layer
from posenc.model.linear import Linear
from posenc.model.loss import token_losses


class Head(Protocol):
    """The output layer, which predicts the next token from hidden states [..., D].

    `weight` [..., D] is the matrix by which the hidden states of all tokens are multiplied.
    """

    @property
    def weight(self) -> Tensor: ...

    def parameters(self) -> Iterator[nn.Parameter]: ...

    def __call__(self, hidden: Tensor) -> Tensor:
        """Return the logits [..., vocab_size]."""
        ...

    def losses(self, hidden: Tensor, targets: Tensor) -> Tensor:
        """Return the negative log-likelihood [B, T] of the targets in nats, float32 or wider."""
        ...


class Decoder(nn.Module):
    """A decoder-only language model.

    `embedding` maps tokens [B, T] to hidden states [B, T, D], which are multiplied by
    `embedding_scale`; `encoding.embed` and `dropout` are applied before the first block.
    `zero_init` is used by `initialize`.
    """

    head: Head

    def __init__(
        self,
        encoding: Encoding,
        embedding: nn.Module,
        blocks: Iterable[Block],
        norm: nn.Module,
        head: Head,
        *,
        embedding_scale: float,
        dropout: float,
        zero_init: bool = False,
    ) -> None:
        super().__init__()
        self.zero_init = zero_init
        self.encoding = encoding
        self.embedding_scale = embedding_scale
        self.embedding = embedding
        self.dropout = nn.Dropout(dropout)
        self.blocks = nn.ModuleList(blocks)
        self.norm = norm
        self.head = head

    def hidden_states(
        self, tokens: Tensor, pos: Tensor | None = None, scored: Tensor | None = None
    ) -> Tensor:
        """Return the hidden states [B, T, D] of tokens [B, T] after the final norm.

        `pos` are positions [T] or coordinates [B, T, axes], if the data provides them. If `scored`
        [B, T] marks n tokens, only their hidden states [n, D] are returned, and nothing after the
        last attention is computed for the other tokens.
        """
        if pos is None:
            pos = self.encoding.positions(tokens.shape[1], tokens.device)
        x = self.encoding.embed(self.embedding(tokens) * self.embedding_scale, pos)
        x = self.dropout(x)
        encodings = [self.encoding.at_layer(index) for index in range(len(self.blocks))]
        with bias_cache(num_encodings=len({id(encoding) for encoding in encodings})):
            for index, block in enumerate(self.blocks):
                is_last = index == len(self.blocks) - 1
                x = block(x, pos, encodings[index], scored if is_last else None)
        return self.norm(x)

    def forward(self, tokens: Tensor, pos: Tensor | None = None) -> Tensor:
        """Return the logits [B, T, vocab_size] of the next token at each position."""
        return self.head(self.hidden_states(tokens, pos))

    def losses(self, tokens: Tensor, targets: Tensor, pos: Tensor | None = None) -> Tensor:
        """Return the negative log-likelihood [B, T] of the targets in nats, float32 or wider."""
        return self.head.losses(self.hidden_states(tokens, pos), targets)

    def parameter_count(self) -> int:
        """Return the number of learnable parameters; tied parameters count once."""
        return sum(p.numel() for p in self.parameters() if p.requires_grad)

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        return next(self.parameters()).device


DecoderFactory = Callable[[int, Encoding, KernelFunction], Decoder]
"""Builds a model from the vocabulary size, the encoding and the attention kernel."""


class LinearHead(Linear):
    """An output layer with one vector per token of the vocabulary."""

    def __init__(self, width: int, vocab_size: int) -> None:
        super().__init__(width, vocab_size, bias=False)

    def losses(self, hidden: Tensor, targets: Tensor) -> Tensor:
        """Return the negative log-likelihood [B, T] of the targets in nats."""
        return token_losses(hidden, self.weight, targets)


class Transformer(Decoder):
    """A decoder with an embedding matrix and an output matrix, which are the same if `tied`.

    `attend` computes attention; `feed_forward` is the hidden width of the feed-forward layers.
    """

    def __init__(
        self,
        vocab_size: int,
        encoding: Encoding,
        attend: KernelFunction,
        *,
        width: int,
        layers: int,
        heads: int,
        feed_forward: int,
        norm: Literal["layer_norm", "rms_norm"] = "layer_norm",
        qk_norm: bool = False,
        activation: Literal["relu", "gelu", "silu", "swiglu"] = "gelu",
        tied: bool = True,
        embedding_scale: float | None = None,
        zero_init: bool = False,
        bias: bool = False,
        dropout: float = 0.0,
    ) -> None:
        options: Any = {
            "norm": norm,
            "qk_norm": qk_norm,
            "activation": activation,
            "bias": bias,
            "dropout": dropout,
        }
        embedding = nn.Embedding(vocab_size, width)
        blocks = [Block(width, heads, feed_forward, attend, **options) for _ in range(layers)]
        head = LinearHead(width, vocab_size)
        if tied:
            head.weight = embedding.weight
        super().__init__(
            encoding,
            embedding,
            blocks,
            norm_layer(norm, width, bias=bias),
            head,
            embedding_scale=width**0.5 if embedding_scale is None else embedding_scale,
            dropout=dropout,
            zero_init=zero_init,
        )


def initialize(model: Decoder, seed: int) -> None:
    """Initialize every weight outside the encoding, seeded by `seed` and the parameter's name.

    Models that differ only in their encoding therefore start from the same weights. Biases are 0,
    and the weights of norms stay 1. Matrices are drawn from N(0, 1/n), where n is fan_in or, for an
    embedding, its width; the output projections of attention and feed-forward layers are divided by
    sqrt(2 layers). With `zero_init`, these projections and an output layer that is not tied to the
    embedding are 0, so the loss of an untied model starts at ln(vocab_size). The projections of an
    adaptive embedding, which are used in the embedding and in the head, are drawn from
    N(0, 2/(fan_in + fan_out)). The encoding's parameters are left unchanged.
    """
    residual_scale = (2 * len(model.blocks)) ** -0.5
    for name, parameter in model.named_parameters():
        if name.startswith("encoding."):
            continue
        if name.endswith(".bias"):
            nn.init.zeros_(parameter)
        if parameter.ndim < 2:
            continue
        if model.zero_init and (name.endswith(".out.weight") or name == "head.weight"):
            nn.init.zeros_(parameter)
            continue
        generator = torch.Generator().manual_seed(derive_seed(seed, name))
        std = parameter.shape[1] ** -0.5 * (residual_scale if name.endswith(".out.weight") else 1.0)
        if name.startswith("embedding.projections."):
            std = (2 / sum(parameter.shape)) ** 0.5
        weights = torch.randn(parameter.shape, generator=generator) * std
        with torch.no_grad():
            parameter.copy_(weights)


def derive_seed(seed: int, name: str) -> int:
    """Return a seed derived from the run's seed and a name, such as that of a parameter."""
    return int.from_bytes(hashlib.sha256(f"{seed}:{name}".encode()).digest()[:7], "big")


def seed_cpu(seed: int) -> None:
    """Seed PyTorch's CPU generator, and those of Python and NumPy, which users' code may use.

    `torch.manual_seed` also seeds the generators of other devices, which `restored_random_state`
    does not restore.
    """
    torch.default_generator.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed % 2**32)


@contextmanager
def restored_random_state() -> Iterator[None]:
    """Restore, on exit, the state of the generators that `seed_cpu` seeds."""
    python_state, numpy_state = random.getstate(), np.random.get_state()
    with torch.random.fork_rng(devices=[]):
        try:
            yield
        finally:
            random.setstate(python_state)
            np.random.set_state(numpy_state)
