"""Encodings by properties: all that is measured, and the tables that set encodings side by side."""

from collections.abc import Mapping

from posenc.inspect.encoding import beyond, codes, cost, decay, linear, precision, relative
from posenc.inspect.encoding.ideal import QUESTIONS, READING, ideal
from posenc.inspect.encoding.measured import Measured
from posenc.inspect.encoding.subject import Subject
from posenc.inspect.findings import Table

PROPERTIES = (
    *codes.PROPERTIES,
    *linear.PROPERTIES,
    *relative.PROPERTIES,
    *decay.PROPERTIES,
    *beyond.PROPERTIES,
    *precision.PROPERTIES,
    *cost.PROPERTIES,
)
THEMES = {
    "codes": "Codes of positions, or of distances where there are none",
    "scores": "Scores under shifts, and axes",
    "decay": "Decay with distance",
    "past L": "Past the training length",
    "low precision": "Low precision",
    "cost": "Weights and cost",
}
COLUMNS = (
    codes.SIZE,
    codes.FARTHEST,
    relative.SHIFT,
    "equal at 16",
    "equal at 4L",
    *decay.WINDOWS,
    "bfloat16 values",
    "int8 values",
    "bfloat16 positions",
    cost.PARAMETERS,
)
"""Of the matrix: numbers that do not hang on the machine."""
CAPTION = (
    "Size: of a code, or of the biases up to L, beside 1 of a unit-variance token embedding or"
    " score. Scores shifted: by how much a score changes when positions move by 1,000. Equal at:"
    " the expected score of a token for one of equal contents so far back. Windows: the nearest"
    " tokens that get 90% of the weight of 4L where contents say nothing. Values and positions: the"
    " largest error of a score at position 100,000 with what the encoding gives, or with positions,"
    " in that format."
)
Found = Mapping[str, Measured]


def measure(subject: Subject) -> Found:
    """Every property of an encoding by name."""
    every = (measured for group in PROPERTIES for measured in group.of(subject))
    return {measured.name: measured for measured in every}


def ideals(found: Mapping[str, Found]) -> Table:
    """The five ideal properties of article 002, a row for each encoding."""
    rows = [[label, *ideal(of)] for label, of in found.items()]
    title = "Five ideal properties"
    return Table("matrix", "ideal", title, ["encoding", *QUESTIONS], rows, READING)


def matrix(found: Mapping[str, Found]) -> Table:
    """A few numbers of every theme, a row for each encoding."""
    rows = [[label, *(of[name].value for name in COLUMNS)] for label, of in found.items()]
    columns = ["encoding", *COLUMNS]
    title = "Encodings by properties"
    return Table("matrix", "matrix", title, columns, rows, CAPTION, printed=len(found) > 1)


def of_theme(theme: str, found: Mapping[str, Found], *, printed: bool) -> Table:
    """All properties of a theme, a row for each encoding."""
    names = [name for group in PROPERTIES if group.theme == theme for name in group.names]
    rows = [[label, *(of[name].value for name in names)] for label, of in found.items()]
    file = theme.replace(" ", "_").lower()
    return Table(file, file, THEMES[theme], ["encoding", *names], rows, printed=printed)
