"""What layers of one forward pass with the same encoding add to their scores, formed once."""

from collections.abc import Callable, Generator, Hashable
from contextlib import contextmanager

from torch import Tensor

_passes: list[tuple[int, dict[Hashable, Tensor]]] = []


@contextmanager
def sharing(encodings: int) -> Generator[None]:
    """A forward pass whose layers have so many encodings; what is formed in it is kept for it."""
    _passes.append((encodings, {}))
    try:
        yield
    finally:
        _passes.pop()


def different(layers: int) -> int:
    """How many encodings the layers have in this forward pass; outside of one, each its own."""
    return _passes[-1][0] if _passes else layers


def shared(key: Hashable, form: Callable[[], Tensor]) -> Tensor:
    """What `form` made for this key in this forward pass; outside of one it is made each time."""
    if not _passes:
        return form()
    _, forms = _passes[-1]
    if key not in forms:
        forms[key] = form()
    return forms[key]
