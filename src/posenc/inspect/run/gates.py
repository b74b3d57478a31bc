"""The gates that tokens set, for encodings of FoX's family (FoX and CABLE in both forms)."""

import torch
from torch import Tensor

from posenc.encodings.fox import CumulativeBias
from posenc.inspect.run.rotary import innermost
from posenc.inspect.run.watch import Rows


class Gates:
    """What a token adds to the sums F_h of a layer, ln f_h(l), 0 at most: [H] for each layer.

    `count` tokens, the `sum` and `squares` of ln f, and how many gates lie below a `half`.
    """

    def __init__(self, layer: int, heads: int) -> None:
        self.layer, self.count = layer, 0
        self.sum, self.squares, self.half = (
            torch.zeros(heads, dtype=torch.float64) for _ in range(3)
        )

    def see(self, rows: Rows) -> None:
        encoding = innermost(rows.layer.encoding)
        if (
            rows.layer.index != self.layer
            or rows.rows.start
            or not isinstance(encoding, CumulativeBias)
        ):
            return
        _, sums = encoding.weights_and_sums(rows.layer.x)
        logs = sums.squeeze(-1).diff(dim=-1).cpu()  # [B, H, T - 1]; the first token's has no effect
        self.count += logs.shape[0] * logs.shape[2]
        self.sum += logs.sum((0, 2))
        self.squares += logs.square().sum((0, 2))
        self.half += (logs < torch.tensor(0.5).log()).sum((0, 2))

    def mean(self) -> Tensor:
        """The mean of ln f [H]: over 1 / |mean| tokens a score falls by 1."""
        return self.sum / self.count

    def std(self) -> Tensor:
        return (self.squares / self.count - self.mean().square()).clamp(min=0).sqrt()

    def below_half(self) -> Tensor:
        """The share of gates below 1/2 [H]."""
        return self.half / self.count
