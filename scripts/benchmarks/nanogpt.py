"""A reimplementation of nanoGPT (Karpathy 2022): GPT-2 in plain PyTorch.

Learned position embeddings, one projection for queries, keys and values, fused causal attention,
exact GELU, tied input and output embeddings, and no biases (nanoGPT's faster setting).
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class CausalSelfAttention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        head_shape = (self.heads, x.shape[-1] // self.heads)
        parts = self.qkv(x).split(x.shape[-1], dim=-1)
        q, k, v = (part.unflatten(-1, head_shape).transpose(1, 2) for part in parts)
        output = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(output.transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self, width: int, heads: int, feed_forward: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(width, bias=False) for _ in range(2))
        self.attention = CausalSelfAttention(width, heads)
        self.up = nn.Linear(width, feed_forward, bias=False)
        self.out = nn.Linear(feed_forward, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norms[0](x))
        return x + self.out(F.gelu(self.up(self.norms[1](x))))


class NanoGPT(nn.Module):
    """Returns logits [B, T, vocab_size] for tokens [B, T], where T is at most `length`."""

    def __init__(
        self, vocab_size: int, length: int, width: int, layers: int, heads: int, feed_forward: int
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, width)
        self.positions = nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, heads, feed_forward) for _ in range(layers))
        self.norm = nn.LayerNorm(width, bias=False)
        self.head = nn.Linear(width, vocab_size, bias=False)
        self.head.weight = self.embedding.weight
        for name, parameter in self.named_parameters():
            if parameter.ndim == 2:
                # As in GPT-2, projections into the residual stream start with smaller weights.
                scale = (2 * layers) ** -0.5 if name.endswith("out.weight") else 1.0
                nn.init.normal_(parameter, std=0.02 * scale)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens) + self.positions(
            torch.arange(tokens.shape[1], device=tokens.device)
        )
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))
