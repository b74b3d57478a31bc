"""What all layers of one forward pass add to their scores, formed once."""

from collections.abc import Callable, Generator, Hashable
from contextlib import contextmanager

from torch import Tensor

_forms: list[dict[Hashable, Tensor]] = []


@contextmanager
def sharing() -> Generator[None]:
    """A forward pass: what is formed in it is kept until its end."""
    _forms.append({})
    try:
        yield
    finally:
        _forms.pop()


def shared(key: Hashable, form: Callable[[], Tensor]) -> Tensor:
    """What `form` made for this key in this forward pass; outside of one it is made each time."""
    if not _forms:
        return form()
    if key not in _forms[-1]:
        _forms[-1][key] = form()
    return _forms[-1][key]
