"""Measures encodings and returns the results as the tables and figures of one HTML report."""

from collections.abc import Callable, Iterator, Mapping, Sequence

import torch

from posenc.check import verify_encoding
from posenc.check.hook_definitions import user_encodings
from posenc.config.errors import ConfigError, describe_error, plural
from posenc.inspect.encoding import (
    attention_cost,
    extrapolation,
    low_precision,
    score_properties,
    vector_properties,
)
from posenc.inspect.encoding.encoding_figures import encoding_figures
from posenc.inspect.encoding.hook_outputs import last_query_scores, random_content
from posenc.inspect.encoding.inspected_encoding import InspectedEncoding, PropertyValue
from posenc.inspect.encoding.low_precision import errors_by_position
from posenc.inspect.inspection import (
    ROUNDING_ERROR,
    InspectionResults,
    InspectionTable,
    make_table,
    short_number,
)
from posenc.report.run_labels import label_notes
from posenc.report.table import Value

PropertyValues = Mapping[str, PropertyValue]
"""The properties of one encoding by name."""
GROUPS = (
    *vector_properties.GROUPS,
    *score_properties.GROUPS,
    *extrapolation.GROUPS,
    *low_precision.GROUPS,
    *attention_cost.GROUPS,
)
CATEGORIES = {
    "vectors": ("Position vectors", "Position vectors, or biases if there are none"),
    "scores": ("Relative positions", "Scores under shifts, and number of axes"),
    "decay": ("Decay with distance", "Expected scores by distance, and effective windows"),
    "extrapolation": ("Beyond the training length", "Extrapolation"),
    "low_precision": ("Low precision", "Maximum score errors"),
    "cost": ("Parameters and cost", "Parameters, kernel and time"),
}
"""The heading of each section of the page, and the title of its table of properties."""
MATRIX_COLUMNS = (
    vector_properties.RMS,
    vector_properties.MAX_FAR,
    score_properties.SCORE_SHIFT,
    "identical tokens at 16",
    "identical tokens at 4L",
    *score_properties.WINDOW_NAMES,
    "bfloat16 q/k/bias",
    "int8 q/k/bias",
    "bfloat16 positions",
    attention_cost.PARAMETERS,
)
"""Columns of the table that compares encodings; none depends on the machine."""
MATRIX_NOTE = (
    "RMS: root mean square of the position vectors, or of the biases, within L; a token"
    " embedding or score has an RMS of 1. Max at 100,000: the largest absolute value near that"
    " position or distance. Score shift error: the maximum change of a score if all positions shift"
    " by 1,000, or as far as the maximum length allows. Identical tokens at: the expected score"
    " between a token and an identical token at that distance (4L: the longest distance in a window"
    " of 4L tokens), mean over heads. Windows: the number of nearest tokens that receive 90% of the"
    " attention weight in a window of 4L tokens if only positions matter; minimum and maximum over"
    " heads. If the maximum length is below 4L, it replaces 4L. Formats: the maximum score error at"
    " position 100,000, or at the last supported position, if queries, keys and biases (q/k/bias),"
    " or the positions, are rounded to that format."
)
IDEAL_COLUMNS = (
    "1 unique at any length",
    "2 linear relation",
    "3 within the trained range at 4L",
    "4 deterministic",
    "5 several axes",
)
IDEAL_NOTE = (
    "The properties of an ideal encoding (Fleetwood 2024). 1: no position vector (or bias, if there"
    " are no vectors) repeats or changes with the length of the sequence."
    " 2: p(m+k) is a fixed linear map of p(m); in"
    " parentheses, the largest residual. 3: scores at 4L are finite and no value is outside the"
    " trained range; in parentheses, the fraction of frequencies, channels or heads outside it, or"
    " the maximum length. 4: another seed gives the same encoding; in parentheses, the change."
    " 5: tokens may have two or three coordinates; in parentheses, how many (two are tried first)."
)
LINEAR_TOLERANCE = 1e-6
"""Smaller residuals of the float64 least-squares fit count as an exact linear relation."""
SEED_TOLERANCE = 1e-5
"""Smaller changes count as float32 rounding errors, which may depend on memory alignment."""


def inspect_encodings(
    encodings: Sequence[InspectedEncoding], on_progress: Callable[[str], None]
) -> InspectionResults:
    """Measure all encodings; `on_progress` is called with a description of each step.

    Raises ConfigError, before anything is measured, for a mistake in a user's encoding.
    """
    for inspected in encodings:
        _verify_user_encoding(inspected)
    results: dict[str, PropertyValues] = {}
    for inspected in encodings:
        on_progress(f"measuring {inspected.label}")
        results[inspected.label] = measure(inspected)
    on_progress("drawing figures")
    names = ", ".join(results) if len(results) <= 6 else f"{len(results)} encodings"
    property_sections = {
        f"properties-{i}": f"Properties of {label}" for i, label in enumerate(results)
    }
    headings = {category: heading for category, (heading, _) in CATEGORIES.items()}
    return InspectionResults(
        title=f"Comparison of {names}" if len(results) > 1 else f"Properties of {names}",
        question="What does the encoding compute, before any training?",
        sections={"matrix": "Comparison", **headings, **property_sections},
        tables=[
            ideal_table(results),
            matrix_table(results),
            *(_category_table(category, results) for category in CATEGORIES),
            *_property_tables(results),
            errors_by_position(encodings),
        ],
        figures=encoding_figures(encodings),
        finding=_finding(results),
    )


def _verify_user_encoding(inspected: InspectedEncoding) -> None:
    """Raise ConfigError for a mistake in a user's encoding, even if only long sequences show it."""
    if not user_encodings(inspected.encoding):
        return
    verify_encoding(inspected.encoding, torch.float32)
    length = inspected.extrapolation_length
    try:
        content = random_content(inspected, length)
        last_query_scores(inspected.encoding, *content, inspected.positions(length))
    except (Exception, SystemExit) as error:  # a user's encoding may raise anything
        raise ConfigError(
            f"{inspected.label}: {describe_error(error)}, for a sequence of {length} tokens; if the"
            f" encoding cannot encode them, return its limit from max_length()"
        ) from error


def _finding(results: Mapping[str, PropertyValues]) -> str:
    """Return a sentence on which encodings decay fastest and slowest, or an empty string.

    It compares their shortest-range heads.
    """
    name = score_properties.WINDOW_NAMES[0]
    values = {label: properties[name].value for label, properties in results.items()}
    windows = {label: v for label, v in values.items() if isinstance(v, int | float)}
    if not windows:
        return ""
    shortest, longest = min(windows.values()), max(windows.values())
    text = (
        f"If only positions mattered, the nearest {short_number(shortest)} tokens would receive"
        f" {score_properties.WINDOW_WEIGHT:.0%} of the attention in the shortest-range head of"
        f" {_labels(windows, shortest)}"
    )
    if shortest == longest:
        return f"{text}."
    return (
        f"{text}, which decays fastest; for {_labels(windows, longest)}, which decays slowest, it"
        f" would be the nearest {short_number(longest)}."
    )


def _labels(windows: Mapping[str, float], size: float) -> str:
    """Return the first encoding with this window, and the number of others."""
    first, *others = (label for label, window in windows.items() if window == size)
    return f"{first} (and {plural(len(others), 'other')})" if others else first


def measure(inspected: InspectedEncoding) -> PropertyValues:
    """Return every property of an encoding."""
    properties: dict[str, PropertyValue] = {}
    for group in GROUPS:
        properties |= group.measure(inspected)
    return properties


def matrix_table(results: Mapping[str, PropertyValues]) -> InspectionTable:
    """Return the table that compares MATRIX_COLUMNS, with a row for each encoding."""
    title = "Properties by encoding"
    return _comparison_table("matrix", title, MATRIX_COLUMNS, results, MATRIX_NOTE)


def _category_table(category: str, results: Mapping[str, PropertyValues]) -> InspectionTable:
    """Return the table of all properties of a category, with a row for each encoding."""
    names = [name for group in GROUPS if group.category == category for name in group.names]
    _, title = CATEGORIES[category]
    return _comparison_table(category, title, names, results)


def _comparison_table(
    name: str,
    title: str,
    properties: Sequence[str],
    results: Mapping[str, PropertyValues],
    note: str = "",
) -> InspectionTable:
    """Return a table of some properties; `name` is its report section and its file stem."""
    rows = [[label, *(values[p].value for p in properties)] for label, values in results.items()]
    columns, printed = ["encoding", *properties], len(results) > 1
    return make_table(name, name, title, columns, rows, note, printed=printed)


def _property_tables(results: Mapping[str, PropertyValues]) -> Iterator[InspectionTable]:
    """Yield a table of all properties for each encoding, and one table for all encodings."""
    columns, all_rows = ["property", "value", "description"], []
    for i, (label, properties) in enumerate(results.items()):
        rows = [[name, *measured] for name, measured in properties.items()]
        title, printed = f"Properties of {label}", len(results) == 1
        yield make_table(f"properties-{i}", "", title, columns, rows, printed=printed)
        all_rows += [[label, *row] for row in rows]
    yield make_table(
        "", "properties", "Properties", ["encoding", *columns], all_rows, printed=False
    )


def ideal_table(results: Mapping[str, PropertyValues]) -> InspectionTable:
    """Return a table of whether each encoding has Fleetwood's (2024) five ideal properties."""
    rows = [[label, *ideal_properties(properties)] for label, properties in results.items()]
    columns = ["encoding", *IDEAL_COLUMNS]
    note = " ".join([*label_notes(results), IDEAL_NOTE])
    return make_table(
        "matrix", "ideal", "Five properties of an ideal encoding", columns, rows, note
    )


def ideal_properties(properties: PropertyValues) -> list[Value]:
    """Return yes or no for each of IDEAL_COLUMNS, mostly with a number; None if not applicable."""
    value = {name: measured.value for name, measured in properties.items()}
    residuals = [x for n in vector_properties.LINEAR_NAMES if isinstance(x := value[n], float)]
    axes = value[score_properties.AXES]
    return [
        _uniqueness(value[vector_properties.FIRST_REPEAT], value[vector_properties.LENGTH_CHANGE]),
        _is_below(max(residuals), LINEAR_TOLERANCE) if residuals else None,
        _length_support(*(value[name] for name in extrapolation.NAMES)),
        _is_below(value[vector_properties.SEED_CHANGE], SEED_TOLERANCE),
        _yes_or_no(axes in (2, 3), axes),
    ]


def _yes_or_no(holds: bool, number: Value) -> str:
    text = "-" if number is None else number if isinstance(number, str) else short_number(number)
    return f"{'yes' if holds else 'no'} ({text})"


def _is_below(value: Value, tolerance: float) -> str:
    """Return yes, with 0 as the number, if the value is below the tolerance."""
    holds = isinstance(value, float) and value < tolerance
    return _yes_or_no(holds, 0.0 if holds else value)


def _uniqueness(repeat: Value, change: Value) -> str:
    if not isinstance(repeat, str):
        return f"no, repeats at {short_number(repeat)}" if repeat is not None else "no (-)"
    if isinstance(change, float) and change < ROUNDING_ERROR:
        return "yes"
    return f"no, changes by {short_number(float(change or 0))}"


def _length_support(max_length: Value, finite: Value, out_of_range: Value) -> Value:
    if finite is None:  # 4L exceeds the maximum length, or could not be measured
        return _yes_or_no(False, max_length)
    if out_of_range is None:
        return None if finite == 1 else _yes_or_no(False, None)
    return _yes_or_no(finite == 1 and out_of_range == 0, out_of_range)
