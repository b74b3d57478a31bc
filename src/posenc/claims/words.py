"""A clause in words."""

from typing import Any

from posenc.claims.grammar import Clause, Value
from posenc.claims.lengths import Length


def clause_text(clause: Clause) -> str:
    """As `perplexity of alibi at 2L is below perplexity of alibi at L`."""
    right = clause.right
    if isinstance(right, Value):
        told = value_text(right)
        told = told if right.times == 1 else f"{right.times:g} times {told}"
    else:
        told = right.text if isinstance(right, Length) else f"{right:g}"
    margin = f" (margin {_margin(clause)})" if clause.margin else ""
    return f"{value_text(clause.left)} {clause.comparison.text} {told}{margin}"


def value_text(value: Value) -> str:
    """As `perplexity of rope base=10000 at 2L, sliding`: what differs from the usual is told."""
    at = "" if value.length is None else f" at {_length(value.length)}"
    trained = "" if value.train_length.text == "L" else f", trained at {value.train_length.text}"
    usual = (None, value.quantity.protocol)
    how = "".join(f", {_how(key, item)}" for key, item in value.rows.items() if item not in usual)
    return f"{value.quantity.name.replace('_', ' ')} of {_subject(value)}{at}{trained}{how}"


def _subject(value: Value) -> str:
    of = dict(value.of)
    name = str(of.pop("encoding", "the runs"))
    knobs = (f"{key.replace('/', '.').rpartition('.')[2]}={item}" for key, item in of.items())
    return " ".join([name, *knobs])


def _margin(clause: Clause) -> str:
    return f"{100 * clause.margin:g}%" if clause.left.quantity.ratio else f"{clause.margin:g}"


def _how(key: str, item: Any) -> str:
    return str(item) if key == "protocol" else f"{key} {item}"


def _length(length: Length | str) -> str:
    return length.text if isinstance(length, Length) else length
