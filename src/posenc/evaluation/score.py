"""What is measured of each scored target."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from posenc.evaluation.windows import Batch
from posenc.model.decoder import Decoder


@dataclass(frozen=True)
class Scores:
    """Of the n scored targets of a batch, in the order of its mask: the negative log-likelihood
    [n] in nats, and, where a protocol asks for it, whether the model ranks each first [n]."""

    losses: Tensor
    hits: Tensor | None = None


Score = Callable[[Decoder, Batch], Scores]


def losses(model: Decoder, batch: Batch) -> Scores:
    """Losses alone; scored targets alone go through the last feed-forward and the head."""
    if batch.scored.all():
        return Scores(model.losses(batch.inputs, batch.targets).flatten())
    return Scores(model.losses_at(batch.inputs, batch.targets, batch.scored))


def losses_and_hits(model: Decoder, batch: Batch) -> Scores:
    """Losses, and whether the target's logit is the highest, or the first of several highest."""
    hidden = model.hidden(batch.inputs, scored=batch.scored)
    wanted = batch.targets[batch.scored]
    found = model.head.losses(hidden[None], wanted[None])[0]
    return Scores(found, model.head(hidden).argmax(dim=-1) == wanted)
