"""An encoding's properties as measurements, without training."""

from collections.abc import Callable, Mapping, Sequence

from posenc.inspect.encoding.matrix import THEMES, Found, ideals, matrix, measure, of_theme
from posenc.inspect.encoding.pictures import HEADINGS, pictures
from posenc.inspect.encoding.precision import by_place
from posenc.inspect.encoding.subject import Subject
from posenc.inspect.findings import Findings, Table

QUESTION = "What is this positional encoding, before any training?"
SAID = "as measured"


def inspect(subjects: Sequence[Subject], report: Callable[[str], None]) -> Findings:
    """Everything measured of all subjects, side by side; `report` is told whose turn it is."""
    found: dict[str, Found] = {}
    for subject in subjects:
        report(subject.label)
        found[subject.label] = measure(subject)
    report("figures")
    alone = len(subjects) == 1
    names = ", ".join(found) if len(found) <= 6 else f"{len(found)} encodings"
    return Findings(
        title=f"What {names} {'is' if alone else 'are'}",
        question=QUESTION,
        sections={"matrix": "Properties side by side", **HEADINGS, **_cards(found)},
        tables=[
            ideals(found),
            matrix(found),
            *_themes(found),
            *_cards_of(found, printed=alone),
            _long(found),
            by_place(subjects),
        ],
        pictures=pictures(subjects),
    )


def _themes(found: Mapping[str, Found]) -> list[Table]:
    return [of_theme(theme, found, printed=len(found) > 1) for theme in THEMES]


def _cards(found: Mapping[str, Found]) -> dict[str, str]:
    return {f"card-{i}": f"Card of {label}" for i, label in enumerate(found)}


def _cards_of(found: Mapping[str, Found], *, printed: bool) -> list[Table]:
    """A card for each encoding: every property, its number, and what was looked at."""
    return [
        Table(
            f"card-{i}",
            None,
            f"Properties of {label}",
            ["property", "value", SAID],
            [[of.name, of.value, of.said] for of in measured.values()],
            printed=printed,
        )
        for i, (label, measured) in enumerate(found.items())
    ]


def _long(found: Mapping[str, Found]) -> Table:
    """All cards below each other, for the file."""
    rows = [
        [label, of.name, of.value, of.said]
        for label, measured in found.items()
        for of in measured.values()
    ]
    columns = ["encoding", "property", "value", SAID]
    return Table("", "cards", "Properties", columns, rows, printed=False)
