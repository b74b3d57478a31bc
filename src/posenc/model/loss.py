"""The loss of every token, without ever holding the logits of a long window whole."""

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.utils.checkpoint import checkpoint

from posenc.data.dataset import IGNORE_INDEX
from posenc.model.linear import linear

LOGITS_BUDGET = 2**26  # logits of one chunk


def token_losses(hidden: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
    """Negative log-likelihood [B, T] in nats of targets [B, T] under hidden [B, T, D] @ weight.T.

    It is 0 where the target is `IGNORE_INDEX`. The product runs in the hidden's precision, softmax
    and logarithm in float32 or wider. Past the budget the logits come in chunks, which the backward
    pass computes again.
    """
    chunk = max(1, LOGITS_BUDGET // weight.shape[0])
    flat, wanted = hidden.flatten(0, 1), targets.flatten()
    if len(flat) <= chunk:
        return _losses(flat, weight, wanted).view_as(targets)
    parts = [
        checkpoint(_losses, h, weight, t, use_reentrant=False)
        if torch.is_grad_enabled()
        else _losses(h, weight, t)
        for h, t in zip(flat.split(chunk), wanted.split(chunk), strict=True)
    ]
    return torch.cat(parts).view_as(targets)


def _losses(hidden: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
    logits = linear(hidden, weight)
    with torch.autocast(hidden.device.type, enabled=False):
        precise = logits if logits.dtype == torch.float64 else logits.float()
        return cross_entropy(precise, targets, ignore_index=IGNORE_INDEX, reduction="none")
