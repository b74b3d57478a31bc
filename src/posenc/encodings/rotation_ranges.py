"""Helpers for encodings that extend RoPE's context by changing the positions of distant keys.

In these encodings, `rotate` returns queries and keys that are rotated for several positions and
concatenated along the channels. `rotation_index` selects one of these rotations for each query and
key. The encodings can be applied to a trained RoPE model without fine-tuning.
"""

import torch
from torch import Tensor

from posenc.encodings.base import Encoding, Geometry, layer_encodings
from posenc.encodings.drope import contains_drope
from posenc.encodings.partial_key_offset import PartialKeyOffset
from posenc.encodings.randomized import Randomized
from posenc.encodings.rope import Rope
from posenc.encodings.wrapper import innermost_encoding


def default_window(geometry: Geometry) -> int:
    """Return the default `window_size` in tokens, a quarter of the training length."""
    return max(1, geometry.train_length // 4)


def rotate_at(
    encoding: Encoding, x: Tensor, q: Tensor, k: Tensor, *positions: tuple[Tensor, Tensor]
) -> tuple[Tensor, Tensor]:
    """Return queries and keys [B, H, T, n d]: n rotated copies, concatenated along the channels.

    Each of the n pairs of `positions` holds the positions [T] of the queries and of the keys.
    """
    distinct = {id(pos): pos for pair in positions for pos in pair}
    rotated = {pos_id: encoding.rotate(x, q, k, pos) for pos_id, pos in distinct.items()}
    queries = [rotated[id(pos_q)][0] for pos_q, _ in positions]
    keys = [rotated[id(pos_k)][1] for _, pos_k in positions]
    return torch.cat(queries, dim=-1), torch.cat(keys, dim=-1)


def rotate_near_and_far(
    encoding: Encoding, x: Tensor, q: Tensor, k: Tensor, pos: Tensor, far_distance: int
) -> tuple[Tensor, Tensor]:
    """Return queries and keys [B, H, T, 2 d], rotated in two ways.

    The first d channels are rotated for `pos`, the others as if every key were `far_distance`
    tokens before the query.
    """
    far = torch.full_like(pos, far_distance), torch.zeros_like(pos)
    return rotate_at(encoding, x, q, k, (pos, pos), far)


def require_rope(encoding: Encoding) -> None:
    """Raise ValueError unless every layer uses RoPE or no rotation, and at least one uses RoPE.

    Wrappers around RoPE, such as window, are allowed, but not those that sample random positions
    or have several rotations themselves, nor DroPE, which drops its rotation during training.
    """
    layers = layer_encodings(encoding)
    if not all(map(_supports_any_positions, layers)) or not any(map(_has_rope, layers)):
        raise ValueError(
            f"inner={type(encoding).__name__} must rotate queries and keys as RoPE does, at any"
            f" positions; choose rope, or a wrapper around it such as window"
        )


def changes_positions(layer: Encoding) -> bool:
    """Return whether a layer's encoding uses positions other than those passed to it."""
    is_randomized = any(isinstance(module, Randomized) for module in layer.modules())
    return is_randomized or layer.overrides("rotation_index")


def _supports_any_positions(layer: Encoding) -> bool:
    if changes_positions(layer) or contains_drope(layer):
        return False
    return _has_rope(layer) or not innermost_encoding(layer).overrides("rotate")


def _has_rope(layer: Encoding) -> bool:
    return type(innermost_encoding(layer)) in (Rope, PartialKeyOffset)
