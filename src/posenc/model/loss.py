"""The cross-entropy of every token, in chunks so that not all logits are in memory at once."""

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.utils.checkpoint import checkpoint

from posenc.data.dataset import IGNORE_INDEX
from posenc.model.linear import linear

LOGITS_BUDGET = 2**26
"""The largest number of logits in a chunk."""


def token_losses(hidden: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
    """Return the negative log-likelihood [...] in nats of targets [...].

    The logits are hidden [..., D] @ weight.T; the loss is 0 where the target is `IGNORE_INDEX`.
    The product is computed in the precision of autocast or, without it, of `hidden`; softmax and
    logarithm in float32 or wider. If there are more logits than `LOGITS_BUDGET`, the loss is
    computed in chunks, which the backward pass recomputes.
    """
    chunk_size = max(1, LOGITS_BUDGET // weight.shape[0])
    rows, labels = hidden.flatten(0, -2), targets.flatten()
    if len(rows) <= chunk_size:
        return _chunk_losses(rows, weight, labels).view_as(targets)
    losses = [
        checkpoint(_chunk_losses, h, weight, t, use_reentrant=False)
        if torch.is_grad_enabled()
        else _chunk_losses(h, weight, t)
        for h, t in zip(rows.split(chunk_size), labels.split(chunk_size), strict=True)
    ]
    return torch.cat(losses).view_as(targets)


def _chunk_losses(hidden: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
    logits = linear(hidden, weight)
    with torch.autocast(hidden.device.type, enabled=False):
        logits = logits if logits.dtype == torch.float64 else logits.float()
        return cross_entropy(logits, targets, ignore_index=IGNORE_INDEX, reduction="none")
