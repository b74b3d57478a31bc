"""Attention kernels: `reference` defines the result, and all others must match it.

A kernel is a module with two functions:

- `attend(encoding, x, q, k, v, pos)` returns the attention output [B, H, T, d] for the layer's
  input x [B, T, D], q and k [B, H, T, d'] after `encoding.rotate`, v [B, H, T, d] and positions pos
  [T] or coordinates [B, T, axes]. Scores are q . k / sqrt(d), where d is the width per head of v,
  plus the encoding's biases. The kernel must support the encoding.
- `unsupported_reason(encoding, device, dtype, pos)` returns why the kernel does not support the
  encoding on that device at positions `pos`, for q, k and v of that dtype, or None if it does.

If the module also defines `needs_bias_by_distance(encoding)` and this returns True, the result of
`toeplitz.bias_by_distance` is passed to `attend` as the last argument. The module may then define
`unsupported_bias_reason(bias)`, which returns why it does not support these values, or None.

`choice` decides which kernel `kernel=auto` uses.
"""

from collections.abc import Callable

from torch import Tensor

from posenc.config.errors import ConfigError
from posenc.encodings.base import Encoding

KernelFunction = Callable[[Encoding, Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]


class UnsupportedKernelError(ConfigError, ValueError):
    """Raised if a kernel does not support an encoding, or the encoding's bias for an input."""

    def __init__(self, kernel: str, encoding: Encoding, reason: str) -> None:
        name, self.reason = type(encoding).__name__, reason
        remedy = "use kernel=auto or kernel=blocks"
        super().__init__(f"kernel={kernel} does not support {name}: {reason}; {remedy}")
