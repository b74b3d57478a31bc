"""Every encoding through PyTorch's scaled dot-product attention, by the cheapest way it allows.

| encoding | way |
| --- | --- |
| neither bias, window nor weights | `causal`, the fused kernel as it is |
| a bias of distance alone or a window, on a CPU | `lines`, as fast, and no mask is made |
| a bias with factors, of fewer columns than the values | `factored`, a few columns more |
| anything else | `blocks`, biases of one block of rows at a time |
"""

from torch import Tensor

from posenc.encodings.base import Encoding
from posenc.model.kernels import blocks, causal, factored, lines


def attend(encoding: Encoding, x: Tensor, q: Tensor, k: Tensor, v: Tensor, pos: Tensor) -> Tensor:
    """Attention as `reference.attend` defines it."""
    if causal.applies(encoding, q, pos) is None:
        return causal.attend(encoding, x, q, k, v, pos)
    if lines.applies(encoding, q, pos) is None:
        line = lines.line_of(encoding, q, pos)
        if line is not None:
            return lines.with_line(encoding, q, k, v, line)
    if factored.applies(encoding, q, pos) is None:
        pairs = encoding.bias_factors(x, pos)
        if pairs is not None and factored.count(pairs, q.dtype) <= v.shape[-1]:
            return factored.with_factors(q, k, v, pairs)
    return blocks.attend(encoding, x, q, k, v, pos)
