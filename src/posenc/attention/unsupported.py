"""A kernel was asked for by name and cannot serve the encoding."""

from posenc.encodings.base import Encoding


class UnsupportedKernelError(ValueError):
    """Which kernel cannot serve which encoding, and why."""

    def __init__(self, kernel: str, encoding: Encoding, why: str) -> None:
        super().__init__(f"kernel={kernel} cannot serve {type(encoding).__name__}: {why}")
