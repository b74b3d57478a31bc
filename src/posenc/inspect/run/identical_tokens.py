"""The distance between the hidden states of two identical tokens, layer by layer (Fleetwood 2024).

"The dog chased another dog" mentions two dogs, which attention without positions and without a mask
cannot tell apart. Hidden states of two identical tokens are compared in three cases:

- the two occurrences of a word in the sentence
- the same two positions in a sequence that repeats the word, so that only their positions differ
  and, with a causal mask, the number of (identical) tokens before them
- every token of the validation text and the previous occurrence of the same token
"""

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from posenc.config.errors import ConfigError
from posenc.inspect.run.observe import BATCH_TOKENS
from posenc.model.device import autocast
from posenc.model.transformer import Decoder
from posenc.runs.row_types import Row


class TokenPairs(NamedTuple):
    """Pairs of tokens: the index of their window and their positions in it, [n] each."""

    window: Tensor
    earlier: Tensor
    later: Tensor


def identical_pairs(tokens: Tensor) -> TokenPairs:
    """Pair every token of windows [B, T] with its previous occurrence in the window."""
    pairs = []
    for index, window in enumerate(tokens.cpu().numpy()):
        order = np.argsort(window, kind="stable")
        equal = np.flatnonzero(window[order[1:]] == window[order[:-1]])
        pairs.append(np.stack([np.full(len(equal), index), order[equal], order[equal + 1]]))
    return TokenPairs(*torch.from_numpy(np.concatenate(pairs, axis=1)))


def different_pairs(pairs: TokenPairs, tokens: Tensor) -> TokenPairs:
    """Pair the earlier token of each pair with the later token of the next pair.

    Only pairs of different tokens that are in the same window and in this order are kept.
    """
    later, window = pairs.later.roll(-1), pairs.window.roll(-1)
    differ = tokens[pairs.window, pairs.earlier] != tokens[pairs.window, later]
    kept = (window == pairs.window) & (later > pairs.earlier) & differ
    return TokenPairs(pairs.window[kept], pairs.earlier[kept], later[kept])


@torch.no_grad()
def hidden_states(model: Decoder, tokens: Tensor, precision: str = "float32") -> Tensor:
    """Return the hidden states of windows [B, T] before layer 0 and after each layer.

    The shape is [layers + 1, B, T, D].
    """
    states: list[Tensor] = []

    def record(block: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> None:
        states.extend([output] if states else [inputs[0], output])

    handles = [block.register_forward_hook(record) for block in model.blocks]
    model.eval()
    try:
        with autocast(precision, model.device):
            model.hidden_states(tokens.to(model.device))
    finally:
        for handle in handles:
            handle.remove()
    return torch.stack([state.double().cpu() for state in states])


def normalized_distance(states: Tensor, pairs: TokenPairs) -> Tensor:
    """Return |a - b| / sqrt(|a|^2 + |b|^2) [..., n] for pairs in states [..., B, T, D].

    It is 0 for identical vectors, 1 for orthogonal ones, and sqrt(2) for opposite vectors of equal
    norm.
    """
    a = states[..., pairs.window, pairs.earlier, :]
    b = states[..., pairs.window, pairs.later, :]
    return (a - b).norm(dim=-1) / (a.square().sum(-1) + b.square().sum(-1)).sqrt()


def sentence_rows(model: Decoder, tokens: Tensor, precision: str = "float32") -> list[Row]:
    """Return the distance between two identical tokens in a sentence [T] at each depth.

    The first rows compare two occurrences of a token in the sentence, the others the same positions
    in a sentence that consists of this token only. Raises ConfigError if no token is repeated.
    """
    positions = last_repeated_positions(tokens)
    windows = torch.stack([tokens, tokens[positions[0]].expand_as(tokens)])
    earlier, later = (torch.tensor([position, position]) for position in positions)
    pairs = TokenPairs(torch.arange(2), earlier, later)
    distances = normalized_distance(hidden_states(model, windows, precision), pairs)
    return [
        {
            "text": text,
            "depth": depth,
            "distance": float(at_depth[n]),
            "pairs": 1,
            "different": None,
        }
        for n, text in enumerate(("sentence", "same token everywhere"))
        for depth, at_depth in enumerate(distances)
    ]


def text_rows(
    model: Decoder, tokens: Tensor, train_length: int, precision: str = "float32"
) -> list[Row]:
    """Return the mean distance between identical tokens in windows [n, T] of text at each depth.

    `different` is the mean distance between different tokens. The later token of a pair determines
    whether the pair is within or beyond the training length.
    """
    ranges = {"within L": (0, train_length), "beyond L": (train_length, tokens.shape[1])}
    sums = {name: torch.zeros(2, len(model.blocks) + 1, dtype=torch.float64) for name in ranges}
    counts = {name: [0, 0] for name in ranges}
    for batch in tokens.split(max(1, BATCH_TOKENS // tokens.shape[1])):
        states, equal = hidden_states(model, batch, precision), identical_pairs(batch)
        for kind, pairs in enumerate((equal, different_pairs(equal, batch))):
            distances = normalized_distance(states, pairs)
            for name, (start, stop) in ranges.items():
                inside = (pairs.later >= start) & (pairs.later < stop)
                sums[name][kind] += distances[:, inside].sum(1)
                counts[name][kind] += int(inside.sum())
    return [
        {
            "text": f"text {name}",
            "depth": depth,
            "distance": float(sums[name][0, depth]) / equal,
            "pairs": equal,
            "different": float(sums[name][1, depth]) / different if different else None,
        }
        for name, (equal, different) in counts.items()
        if equal
        for depth in range(len(model.blocks) + 1)
    ]


def last_repeated_positions(tokens: Tensor) -> tuple[int, int]:
    """Return the first and last positions of the last token that occurs more than once.

    Raises ConfigError if there is none.
    """
    for position in range(len(tokens) - 1, 0, -1):
        positions = (tokens == tokens[position]).nonzero().flatten()
        if len(positions) > 1:
            return int(positions[0]), int(positions[-1])
    raise ConfigError(
        "sentence: no token occurs twice; repeat a word, as in 'The dog chased another dog'"
    )
