"""LM-Infinite: a window, the first tokens and capped distances (Han et al. 2023, arXiv:2308.16137).

    score(i, j) = s(min(i - j, size))    for i - j < size or j < start_size, else -inf

s(n) is the score of the inner encoding at distance n. For those of the first tokens that are
outside the window, s(size) is (R(size) q_i) . k_j / sqrt(d) with RoPE, or q_i . k_j / sqrt(d) plus
the bias at distance `size`. As in the authors' code (Glaciohound/LM-Infinite, models/llama.py),
size is by default the training length; the authors keep 10 to 100 tokens. The encoding can be
applied to a trained model without fine-tuning. q, k [B, H, T, d]; pos [T].
"""

from torch import Tensor

from posenc.encodings.base import Encoding, Geometry, layer_encodings
from posenc.encodings.coordinates import require_1d_positions
from posenc.encodings.randomized import POSITION_HOOKS
from posenc.encodings.rotation_ranges import require_rope, rotate_near_and_far
from posenc.encodings.window import Window
from posenc.encodings.wrapper import EncodingFactory


class LmInfinite(Window):
    """RoPE or a bias with distances of at most `size` tokens, by default the training length."""

    def __init__(
        self,
        geometry: Geometry,
        *,
        inner: EncodingFactory,
        size: int | None = None,
        start_size: int = 10,
    ) -> None:
        if start_size < 1:
            raise ValueError(
                f"start_size={start_size} must be at least 1 token; to keep none, choose window"
            )
        size = geometry.train_length if size is None else size
        super().__init__(geometry, inner=inner, size=size, start_size=start_size)
        _require_distances_only(self.inner)

    def rotate(self, x: Tensor, q: Tensor, k: Tensor, pos: Tensor) -> tuple[Tensor, Tensor]:
        if not self.active.overrides("rotate"):
            return q, k
        require_1d_positions(pos, "lm_infinite")
        return rotate_near_and_far(self.active, x, q, k, pos, self.size)

    def rotation_index(self, pos_q: Tensor, pos_k: Tensor) -> Tensor:
        return (pos_q - pos_k >= self.size).long()

    def bias(self, head: Tensor, distance: Tensor, pos_q: Tensor) -> Tensor | None:
        return self.active.bias(head, distance.clamp(max=self.size), pos_q)

    def bias_factors(self, x: Tensor, q: Tensor, k: Tensor, pos: Tensor) -> None:
        """Return None: a bias of capped distances does not factorize."""

    def overrides(self, hook: str) -> bool:
        inner_hooks = {"rotate": "rotate", "rotation_index": "rotate", "bias": "bias"}
        if hook in inner_hooks:
            return self.active.overrides(inner_hooks[hook])
        return hook != "bias_factors" and super().overrides(hook)


def _require_distances_only(encoding: Encoding) -> None:
    """Raise ValueError unless positions enter only as distances, through RoPE or a bias."""
    layers = layer_encodings(encoding)
    used = {
        hook
        for hook in POSITION_HOOKS
        if encoding.overrides(hook) or any(layer.overrides(hook) for layer in layers)
    }
    uses_positions = "bias" in used and "shift_invariant" in encoding.limitations
    if uses_positions or not used or not used <= {"rotate", "bias"}:
        raise ValueError(
            f"inner={type(encoding).__name__} must use distances only, in rotations or in a bias;"
            f" choose rope or alibi, or streaming_llm, which does not limit distances"
        )
    if "rotate" in used:
        require_rope(encoding)
