"""Stick-breaking attention (Tan et al. 2024, arXiv:2410.17980), which prefers recent keys.

    weight(i, j) = sigmoid(z_ij) prod_{k=j+1..i-1} (1 - sigmoid(z_ik)),   z = q . k / sqrt(d)

From the query back to the first key, each key takes a fraction sigmoid(z) of the weight that the
later keys have left (the rest of the stick). There is no softmax, and the order of the keys is the
only positional information. As in the authors' tests (shawntan/stickbreaking-attention,
test_attn.py), a query does not attend to its own key, but the value of that key receives the
remaining weight, prod_{k<i} (1 - sigmoid(z_ik)). With `attend_current`, j and k include i, and the
query's own key also receives the weight that remains after that.
"""

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid, pad

from posenc.encodings.base import Encoding, Geometry


class StickBreaking(Encoding):
    """Attention weights from stick-breaking instead of a softmax."""

    def __init__(self, geometry: Geometry, *, attend_current: bool = False) -> None:
        super().__init__(geometry)
        self.attend_current = attend_current

    def normalize(self, scores: Tensor) -> Tensor:
        rows, keys = scores.shape[-2:]
        key = torch.arange(keys, device=scores.device)
        own_key = key == key[keys - rows :, None]
        if not self.attend_current:
            scores = scores.masked_fill(own_key, -torch.inf)
        log_remaining = logsigmoid(-scores).flip(-1).cumsum(-1)  # after keys i to j, reversed
        log_remaining_before = pad(log_remaining, (1, -1)).flip(-1)
        weights = (logsigmoid(scores) + log_remaining_before).exp()
        return weights + own_key * log_remaining[..., -1:].exp()
