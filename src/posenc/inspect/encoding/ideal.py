"""The five ideal properties of article 002, "You could have designed state of the art positional
encoding" (Fleetwood 2024), each answered from measurements."""

from collections.abc import Mapping

from posenc.inspect.encoding.beyond import NAMES as PAST
from posenc.inspect.encoding.codes import LENGTH, REPEATS, SEED
from posenc.inspect.encoding.linear import NAMES as MAPS
from posenc.inspect.encoding.measured import Measured
from posenc.inspect.encoding.relative import AXES
from posenc.inspect.findings import Cell
from posenc.inspect.formats import ZERO, text

LINEAR = 1e-6
"""The share that a least-squares map of float64 may leave of a linear relation."""
QUESTIONS = (
    "1 unique in any length",
    "2 linear relation",
    "3 longer sequences",
    "4 deterministic",
    "5 several axes",
)
READING = (
    "1: no code repeats, and none changes with the sequence's length. 2: a fixed linear map leads"
    " from p(m) to p(m+k); in brackets, what the best one leaves, at worst. 3: 4L is finite and"
    " shows nothing that L did not; in brackets, the share of frequencies, channels or heads that"
    " it takes out of their range, or the longest sequence. 4: another seed gives the same; in"
    " brackets, the change. 5: tokens may have two coordinates."
)


def ideal(found: Mapping[str, Measured]) -> list[Cell]:
    """Yes or no to each of QUESTIONS, with the number; None where a question does not apply."""
    value = {name: measured.value for name, measured in found.items()}
    return [
        _unique(value[REPEATS], value[LENGTH]),
        _linear([value[name] for name in MAPS]),
        _longer(*(value[name] for name in PAST)),
        _answer(_still(value[SEED]), value[SEED]),
        _answer(value[AXES] == 2, value[AXES]),
    ]


def _answer(holds: bool, number: Cell) -> str:
    return f"{'yes' if holds else 'no'} ({text(number)})"


def _unique(repeat: Cell, change: Cell) -> str:
    if not isinstance(repeat, str):
        return f"no, repeats at {text(repeat)}"
    return "yes" if _still(change) else f"no, changes by {text(change)}"


def _still(change: Cell) -> bool:
    return isinstance(change, float) and change < ZERO


def _linear(shares: list[Cell]) -> Cell:
    left = [share for share in shares if isinstance(share, float)]
    if not left:
        return None
    worst = max(left)
    return _answer(worst < LINEAR, 0.0 if worst < LINEAR else worst)


def _longer(longest: Cell, finite: Cell, new: Cell) -> str:
    if new is None:
        return _answer(False, longest)
    return _answer(finite == 1 and new == 0, new)
