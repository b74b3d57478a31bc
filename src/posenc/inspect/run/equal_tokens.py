"""The "dog" of article 002 (Fleetwood 2024): how far apart two equal tokens end up.

"The dog chased another dog" has two dogs; without positions and without a mask attention makes
them the same. Here the stream of the model is followed through its layers at both: in the
sentence; where all tokens are that one, so that positions alone can tell them apart (a causal mask
cannot: all that is behind is the same); and at all equal neighbours in a text.
"""

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from posenc.attention.precision import autocast
from posenc.config.errors import ConfigError
from posenc.inspect.run.watch import BATCH_TOKENS
from posenc.model.transformer import Decoder


class Pairs(NamedTuple):
    """Tokens of windows, by window and two places [n] each, the later one second."""

    window: Tensor
    earlier: Tensor
    later: Tensor


def equal_pairs(tokens: Tensor) -> Pairs:
    """Every token of windows [B, T] that came before in its window, and where it came last."""
    found = []
    for number, window in enumerate(tokens.cpu().numpy()):
        order = np.argsort(window, kind="stable")
        same = np.flatnonzero(window[order[1:]] == window[order[:-1]])
        found.append(np.stack([np.full(len(same), number), order[same], order[same + 1]]))
    return Pairs(*torch.from_numpy(np.concatenate(found, axis=1)))


def different_pairs(pairs: Pairs, tokens: Tensor) -> Pairs:
    """As many pairs at the like places, of each earlier token with the later one of the next pair:
    those whose tokens differ and that lie in one window in that order."""
    later, window = pairs.later.roll(-1), pairs.window.roll(-1)
    differ = tokens[pairs.window, pairs.earlier] != tokens[pairs.window, later]
    kept = (window == pairs.window) & (later > pairs.earlier) & differ
    return Pairs(pairs.window[kept], pairs.earlier[kept], later[kept])


@torch.no_grad()
def streams(model: Decoder, tokens: Tensor, precision: str = "float32") -> Tensor:
    """The stream of windows [B, T] before the first layer and after each, [layers + 1, B, T, D]."""
    found: list[Tensor] = []

    def before(block: nn.Module, given: tuple[Any, ...]) -> None:
        found.append(given[0])

    def after(block: nn.Module, given: tuple[Any, ...], stream: Tensor) -> None:
        found.append(stream)

    handles = [model.blocks[0].register_forward_pre_hook(before)]
    handles += [block.register_forward_hook(after) for block in model.blocks]
    model.eval()
    try:
        with autocast(precision, model.device):
            model.hidden_states(tokens.to(model.device))
    finally:
        for handle in handles:
            handle.remove()
    return torch.stack([stream.double().cpu() for stream in found])


def apart(stream: Tensor, pairs: Pairs) -> Tensor:
    """|a - b| / sqrt(|a|^2 + |b|^2) for the pairs in a stream [.., B, T, D], [.., n].

    0 for equal vectors, 1 for orthogonal ones, sqrt(2) for opposite ones of one norm.
    """
    a, b = stream[..., pairs.window, pairs.earlier, :], stream[..., pairs.window, pairs.later, :]
    size = (a.square().sum(-1) + b.square().sum(-1)).sqrt()
    return (a - b).norm(dim=-1) / size


def in_a_sentence(
    model: Decoder, tokens: Tensor, precision: str = "float32"
) -> list[dict[str, Any]]:
    """A row for each depth: the equal tokens of a sentence [T], and the same places where every
    token is that one. ConfigError where no token is there twice."""
    places = last_repeated(tokens)
    if places is None:
        raise ConfigError(
            "sentence: no token of it is there twice; give one that says a word again, as"
            " 'The dog chased another dog'"
        )
    both = torch.stack([tokens, tokens[places[0]].expand_as(tokens)])
    earlier, later = (torch.tensor([place, place]) for place in places)
    found = apart(streams(model, both, precision), Pairs(torch.arange(2), earlier, later))
    return [
        {"where": where, "depth": depth, "apart": float(of_depth[n]), "pairs": 1, "different": None}
        for n, where in enumerate(("sentence", "one token alone"))
        for depth, of_depth in enumerate(found)
    ]


def in_a_text(
    model: Decoder, tokens: Tensor, train_length: int, precision: str = "float32"
) -> list[dict[str, Any]]:
    """A row for each depth: means over equal pairs of windows [n, T], and, to compare, over pairs
    of different tokens; the later one within the training length, and past it."""
    ranges = {"text within L": (0, train_length), "text past L": (train_length, tokens.shape[1])}
    sums = {where: torch.zeros(2, len(model.blocks) + 1, dtype=torch.float64) for where in ranges}
    counts = {where: [0, 0] for where in ranges}
    for batch in tokens.split(max(1, BATCH_TOKENS // tokens.shape[1])):
        found, equal = streams(model, batch, precision), equal_pairs(batch)
        for which, pairs in enumerate((equal, different_pairs(equal, batch))):
            distances = apart(found, pairs)
            for where, (start, stop) in ranges.items():
                inside = (pairs.later >= start) & (pairs.later < stop)
                sums[where][which] += distances[:, inside].sum(1)
                counts[where][which] += int(inside.sum())
    return [
        {
            "where": where,
            "depth": depth,
            "apart": float(sums[where][0, depth]) / equal,
            "pairs": equal,
            "different": float(sums[where][1, depth]) / different if different else None,
        }
        for where, (equal, different) in counts.items()
        if equal
        for depth in range(len(model.blocks) + 1)
    ]


def last_repeated(tokens: Tensor) -> tuple[int, int] | None:
    """The places of the last token of a sentence [T] that is there twice, first and last."""
    for place in range(len(tokens) - 1, 0, -1):
        places = (tokens == tokens[place]).nonzero().flatten()
        if len(places) > 1:
            return int(places[0]), int(places[-1])
    return None
