"""What an inspection has found: tables and figures, by the section of the page they stand in."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from posenc.report.vega_figure import Figure

Cell = str | float | None
"""A number is unrounded; None is shown as a dash."""


@dataclass(frozen=True)
class Table:
    """`file` is the stem of its csv, if it is written; `section` where on the page it stands."""

    section: str
    file: str | None
    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    caption: str = ""
    printed: bool = True


@dataclass(frozen=True)
class Findings:
    """`sections` are headings by name, in the order of the page; `notes` say how to read it all."""

    title: str
    question: str
    sections: Mapping[str, str]
    tables: Sequence[Table]
    pictures: Sequence[Figure]
    notes: Sequence[str] = field(default=())
