"""A layer of the Transformer, pre-norm."""

from torch import Tensor, nn

from posenc.attention import Kernel
from posenc.encodings.base import Encoding
from posenc.model.layers import Attention, FeedForward, GatedFeedForward, norm_layer


class Block(nn.Module):
    """x + attention(norm(x)), then x + feed_forward(norm(x)).

    `dropout` is for what each sub-layer writes to the stream, `activation_dropout` for the hidden
    channels of the feed-forward layer.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        feed_forward: int,
        attend: Kernel,
        *,
        norm: str,
        activation: str,
        bias: bool,
        dropout: float,
        activation_dropout: float = 0.0,
    ) -> None:
        super().__init__()
        for name, share in (("dropout", dropout), ("activation_dropout", activation_dropout)):
            if not 0 <= share < 1:
                raise ValueError(f"{name}={share} is a share; give 0 or more and less than 1")
        if feed_forward < 1:
            raise ValueError(f"feed_forward={feed_forward} must be 1 or more")
        self.attention = Attention(width, heads, attend, bias=bias)
        self.feed_forward = (
            GatedFeedForward(width, feed_forward, activation_dropout, bias=bias)
            if activation == "swiglu"
            else FeedForward(width, feed_forward, activation, activation_dropout, bias=bias)
        )
        self.attention_norm = norm_layer(norm, width, bias=bias)
        self.feed_forward_norm = norm_layer(norm, width, bias=bias)
        self.dropout = nn.Dropout(dropout)

    def forward(
        self, x: Tensor, pos: Tensor, encoding: Encoding, scored: Tensor | None = None
    ) -> Tensor:
        """The stream [B, T, D]; or, at the n tokens alone that `scored` [B, T] marks, [n, D]."""
        x = x + self.dropout(self.attention(self.attention_norm(x), pos, encoding))
        x = x if scored is None else x[scored]
        return x + self.dropout(self.feed_forward(self.feed_forward_norm(x)))
