"""All measurements of encodings, as tables and figures of one page."""

from collections.abc import Callable, Mapping, Sequence

from posenc.inspect.encoding import (
    attention_cost,
    extrapolation,
    low_precision,
    score_properties,
    vector_properties,
)
from posenc.inspect.encoding.encoding_figures import SECTIONS, encoding_figures
from posenc.inspect.encoding.inspected_encoding import InspectedEncoding, PropertyValue
from posenc.inspect.encoding.low_precision import errors_by_position
from posenc.inspect.inspection import (
    ROUNDING,
    InspectionResults,
    InspectionTable,
    make_table,
    short_number,
)
from posenc.report.table import Table, Value

PropertyValues = Mapping[str, PropertyValue]
"""The measurements of one encoding by the name of the property."""
GROUPS = (
    *vector_properties.GROUPS,
    *score_properties.GROUPS,
    *extrapolation.GROUPS,
    *low_precision.GROUPS,
    *attention_cost.GROUPS,
)
THEMES = {
    "vectors": "Properties of position vectors, or of biases where there are none",
    "scores": "Scores under shifts, and axes",
    "decay": "Expected scores by distance, and effective windows",
    "extrapolation": "Extrapolation",
    "low precision": "Max errors of scores",
    "cost": "Parameters, kernel and time",
}
MATRIX_COLUMNS = (
    vector_properties.RMS,
    vector_properties.MAX_FAR,
    score_properties.SCORE_SHIFT,
    "equal at 16",
    "equal at 4L",
    *score_properties.WINDOWS,
    "bfloat16 values",
    "int8 values",
    "bfloat16 positions",
    attention_cost.PARAMETERS,
)
"""Properties of every theme that do not depend on the machine."""
MATRIX_NOTE = (
    "RMS: of the position vectors, or of the biases up to L; a token embedding or score has 1."
    " Score shift error: the change of a score if all positions shift by 1,000. Equal at: the"
    " expected score of a token and an equal one at that distance. Windows: the nearest tokens that"
    " get 90% of the weight of 4L, without content, in the narrowest and in the widest head."
    " Values, positions: the max error of a score at position 100,000 if the encoding's values, or"
    " the positions, are in that format."
)
QUESTIONS = (
    "1 unique at any length",
    "2 linear relation",
    "3 longer sequences",
    "4 deterministic",
    "5 several axes",
)
IDEAL_NOTE = (
    "The properties that Fleetwood (2024) asks for. 1: no position vector repeats or changes with"
    " the length of the sequence. 2: p(m+k) is a fixed linear map of p(m); in brackets, the largest"
    " residual. 3: scores at 4L are finite and nothing is out of the trained range; in brackets,"
    " the fraction of frequencies, channels or heads that is, or the maximum length. 4: another"
    " seed gives the same encoding; in brackets, the change. 5: tokens may have two coordinates."
)
LINEAR_UP_TO = 1e-6
"""The residual that a least-squares fit in float64 may leave of a linear relation."""


def inspect_encodings(
    encodings: Sequence[InspectedEncoding], report: Callable[[str], None]
) -> InspectionResults:
    """Measure all encodings; `report` shows the progress."""
    results: dict[str, PropertyValues] = {}
    for inspected in encodings:
        report(inspected.label)
        results[inspected.label] = measure(inspected)
    report("figures")
    several = len(encodings) > 1
    names = ", ".join(results) if len(results) <= 6 else f"{len(results)} encodings"
    cards = {f"card-{i}": f"Properties of {label}" for i, label in enumerate(results)}
    return InspectionResults(
        title=f"{names} compared" if several else f"Properties of {names}",
        question="What does the encoding compute, before any training?",
        sections={"matrix": "Comparison", **SECTIONS, **cards},
        tables=[
            ideal_table(results),
            matrix_table(results),
            *(_theme_table(theme, results, printed=several) for theme in THEMES),
            *_cards(results, printed=not several),
            _all_cards(results),
            errors_by_position(encodings),
        ],
        figures=encoding_figures(encodings),
    )


def measure(inspected: InspectedEncoding) -> PropertyValues:
    """Return every property of an encoding."""
    values = (value for group in GROUPS for value in group.measure(inspected))
    return {value.name: value for value in values}


def matrix_table(results: Mapping[str, PropertyValues]) -> InspectionTable:
    """Return a few properties of every theme, with a row for each encoding."""
    table = _table("Encodings by property", MATRIX_COLUMNS, results, MATRIX_NOTE)
    return InspectionTable("matrix", "matrix", table, printed=len(results) > 1)


def _theme_table(
    theme: str, results: Mapping[str, PropertyValues], *, printed: bool
) -> InspectionTable:
    """Return all properties of a theme, with a row for each encoding."""
    names = [name for group in GROUPS if group.theme == theme for name in group.names]
    file = theme.replace(" ", "_")
    return InspectionTable(file, file, _table(THEMES[theme], names, results), printed)


def _table(
    title: str, names: Sequence[str], results: Mapping[str, PropertyValues], note: str = ""
) -> Table:
    rows = [
        [label, *(measurements[name].value for name in names)]
        for label, measurements in results.items()
    ]
    return make_table(title, ["encoding", *names], rows, note)


def _cards(results: Mapping[str, PropertyValues], *, printed: bool) -> list[InspectionTable]:
    """Return for each encoding every property with its value and description."""
    columns = ["property", "value", "description"]
    return [
        InspectionTable(
            f"card-{i}", "", make_table(f"Properties of {label}", columns, _card(card)), printed
        )
        for i, (label, card) in enumerate(results.items())
    ]


def _all_cards(results: Mapping[str, PropertyValues]) -> InspectionTable:
    """Return the cards of all encodings as one table, for a file."""
    columns = ["encoding", "property", "value", "description"]
    rows = [[label, *row] for label, card in results.items() for row in _card(card)]
    return InspectionTable("", "cards", make_table("Properties", columns, rows), printed=False)


def _card(card: PropertyValues) -> list[list[Value]]:
    return [[m.name, m.value, m.description] for m in card.values()]


def ideal_table(results: Mapping[str, PropertyValues]) -> InspectionTable:
    """Return whether each encoding has the five ideal properties of Fleetwood (2024)."""
    rows = [[label, *ideal_properties(card)] for label, card in results.items()]
    table = make_table("Five ideal properties", ["encoding", *QUESTIONS], rows, IDEAL_NOTE)
    return InspectionTable("matrix", "ideal", table)


def ideal_properties(card: PropertyValues) -> list[Value]:
    """Return yes or no to each of QUESTIONS, with the number; None where it does not apply."""
    value = {name: measurement.value for name, measurement in card.items()}
    seed_change, axes = value[vector_properties.SEED_CHANGE], value[score_properties.AXES]
    return [
        _unique(value[vector_properties.FIRST_REPEAT], value[vector_properties.LENGTH_CHANGE]),
        _linear([value[name] for name in vector_properties.LINEAR]),
        _longer(*(value[name] for name in extrapolation.NAMES)),
        _answer(_is_zero(seed_change), seed_change),
        _answer(axes == 2, axes),
    ]


def _answer(holds: bool, number: Value) -> str:
    shown = "-" if number is None else number if isinstance(number, str) else short_number(number)
    return f"{'yes' if holds else 'no'} ({shown})"


def _unique(repeat: Value, change: Value) -> str:
    if not isinstance(repeat, str):
        return f"no, repeats at {short_number(repeat)}" if repeat is not None else "no (-)"
    return "yes" if _is_zero(change) else f"no, changes by {short_number(float(change or 0))}"


def _linear(residuals: list[Value]) -> Value:
    numbers = [residual for residual in residuals if isinstance(residual, float)]
    if not numbers:
        return None
    largest = max(numbers)
    return _answer(largest < LINEAR_UP_TO, 0.0 if largest < LINEAR_UP_TO else largest)


def _longer(max_length: Value, finite: Value, out_of_range: Value) -> str:
    if out_of_range is None:
        return _answer(False, max_length)
    return _answer(finite == 1 and out_of_range == 0, out_of_range)


def _is_zero(change: Value) -> bool:
    return isinstance(change, float) and change < ROUNDING
