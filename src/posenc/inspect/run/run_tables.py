"""The report on a trained model: tables, some of them averaged over heads, and figures."""

from collections.abc import Iterable, Sequence
from math import pi, sqrt

from posenc.inspect.inspection import (
    InspectionResults,
    InspectionTable,
    make_table,
    short_number,
)
from posenc.inspect.run.run_figures import run_figures
from posenc.inspect.run.run_measurements import RunMeasurements
from posenc.report.table import Value
from posenc.runs.row_types import Row

SECTIONS = {
    "attention": "Attention",
    "scores": "Scores within and beyond the training length",
    "rotations": "Rotary frequencies",
    "encoding": "Bias and trained parameters",
    "vectors": "Token and position embeddings",
    "equal": "Two identical tokens",
}
MEANS = ("entropy", "distance", "first", "self", "previous", "beyond", "shift")
HEADS_NOTE = (
    "Means over the queries in the second half of windows of L or less, and over the queries beyond"
    " L in longer windows. entropy: the entropy of the attention weights, in nats. distance: the"
    " mean distance of attention, in tokens. first, self, previous, beyond: the fraction of"
    " attention on the first token of the window, the query's token, the token before it, and"
    " tokens at distances of L or more. shift: the total variation distance (0 to 1) between the"
    " attention to the nearest L/2 tokens (half a window, if windows are shorter than L) in these"
    " windows and in windows of L, each normalized to sum to 1, so that attention merely spreading"
    " over more keys does not count as a shift."
)
SCORES_NOTE = (
    "q . k / sqrt(d) plus the encoding's bias. within: queries within L. near: queries beyond L,"
    " keys at distances below L. far: queries beyond L, keys at distances of L or more. A change"
    " from within to near that is not due to longer distances is an effect of positions beyond L; a"
    " change from near to far is an effect of distances beyond L."
)
ROTARY_NOTE = (
    "norm: the fraction of |q_i| |k_j|, an upper bound on the contribution to the score (Barbero et"
    " al. 2024). variation: the fraction of the score differences between the keys of a query,"
    " which determine the softmax; a negative fraction means that the frequency counteracts the"
    " others. Both sum to 1. periods in L: if below 1, the frequency never completes a period in"
    " training."
)
EMBEDDINGS_NOTE = (
    "norm, std: mean and standard deviation of the norms, with embeddings scaled as they enter the"
    " model. diagonal ratio: the mean of the covariance's diagonal divided by the mean absolute"
    " value of its other elements. independent: the expected ratio for as many vectors with"
    " independent channels. diagonal fraction: the diagonal's fraction of the sum of squares (Su"
    " 2021)."
)
EQUAL_NOTE = (
    "|a - b| / sqrt(|a|^2 + |b|^2) of the hidden states of two identical tokens, before the first"
    " layer (0) and after each layer: 0 if identical, 1 if orthogonal. sentence: the last token"
    " that is repeated. same token everywhere: the same positions if all tokens are that token."
    " text: every token and its previous occurrence. different: pairs of different tokens."
)
GATES_NOTE = (
    "mean_log, std_log: mean and standard deviation of the bias per token, ln f for a forget gate"
    " f; every 1 / |mean_log| tokens, scores fall by about 1. below_half: the fraction of gates"
    " below 1/2."
)
PARAMETERS_NOTE = (
    "Root mean squares before and after training, and of the change; learned.csv has each value or,"
    " for large parameters, each norm."
)


def run_results(
    name: str, encoding: str, measurements: RunMeasurements, train_length: int
) -> InspectionResults:
    """Return all tables and figures of a run; `encoding` is the name of its encoding."""
    return InspectionResults(
        title=f"Attention analysis: {name}",
        question=(
            f"Where does attention go in windows of L = {train_length} tokens and in longer ones,"
            " and what does the encoding contribute?"
        ),
        sections=SECTIONS,
        tables=run_tables(measurements.tables, train_length),
        figures=run_figures(measurements.tables, train_length, encoding),
        notes=measurements.notes,
        finding=_finding(measurements.tables["heads"], train_length),
    )


def _finding(heads: Sequence[Row], train_length: int) -> str:
    """Return sentences on how far attention reaches and what changes in the longest windows."""
    by_length = _group(heads, "length")
    layers = {
        layer: _mean(rows, "distance")
        for (layer,), rows in _group(by_length[(train_length,)], "layer").items()
    }
    low, high = min(layers, key=layers.__getitem__), max(layers, key=layers.__getitem__)
    text = (
        f"In windows of L = {train_length} tokens, the mean distance of attention is"
        f" {short_number(layers[low])} tokens in layer {low}"
    )
    if high != low:
        text += f" (the lowest) and {short_number(layers[high])} in layer {high} (the highest)"
    (longest,) = max(by_length)
    if longest == train_length:
        return f"{text}."
    rows = by_length[(longest,)]
    return (
        f"{text}. In windows of {longest} tokens, {_mean(rows, 'beyond'):.1%} of the attention is"
        f" at distances of L or more, and the attention to the nearest L/2 tokens shifts by"
        f" {short_number(_mean(rows, 'shift'))} on a scale from 0 (not at all) to 1 (completely)."
    )


def run_tables(rows: dict[str, list[Row]], train_length: int) -> list[InspectionTable]:
    tables = [
        _layer_table(rows["heads"]),
        _raw_table("attention", "heads", "Attention by head", rows["heads"], HEADS_NOTE),
        _region_table(rows["scores"]),
        _raw_table("scores", "scores", "Scores by head", rows["scores"], SCORES_NOTE),
    ]
    if "frequencies" in rows:
        tables.append(_rotary_table(rows["frequencies"], train_length))
    if "gates" in rows:
        gates = rows["gates"]
        tables.append(
            _raw_table("encoding", "gates", "Forget gates", gates, GATES_NOTE, printed=True)
        )
    if "learned" in rows:
        tables.append(_parameter_table(rows["learned"]))
    return [*tables, _embedding_table(rows["embeddings"]), _equal_token_table(rows["equal_tokens"])]


def _layer_table(heads: Sequence[Row]) -> InspectionTable:
    columns = ["length", "layer", *MEANS, "max shift", "in head"]
    table_rows: list[list[Value]] = []
    for (length, layer), rows in _group(heads, "length", "layer").items():
        largest = max(rows, key=lambda row: row["shift"])
        shift = [largest["shift"], largest["head"]] if largest["shift"] else [None, None]
        table_rows.append([length, layer, *(_mean(rows, name) for name in MEANS), *shift])
    title = "Attention by layer, mean over heads"
    return make_table("attention", "layers", title, columns, table_rows, HEADS_NOTE, key_columns=2)


def _region_table(scores: Sequence[Row]) -> InspectionTable:
    """Return the table of scores by layer in the longest windows, pooled over heads."""
    longest = max(row["length"] for row in scores)
    table_rows: list[list[Value]] = []
    in_longest = [row for row in scores if row["length"] == longest]
    for (layer, region), rows in _group(in_longest, "layer", "region").items():
        mean = _mean(rows, "mean")
        squares = sum(row["std"] ** 2 + row["mean"] ** 2 for row in rows) / len(rows)
        extremes = min(row["min"] for row in rows), max(row["max"] for row in rows)
        table_rows.append([layer, region, mean, sqrt(max(0.0, squares - mean**2)), *extremes])
    columns = ["layer", "region", "mean", "std", "min", "max"]
    title = f"Scores by layer in windows of {longest} tokens"
    return make_table(
        "scores", "score_regions", title, columns, table_rows, SCORES_NOTE, key_columns=2
    )


def _rotary_table(frequencies: Sequence[Row], train_length: int) -> InspectionTable:
    columns = ["length", "index", "frequency", "wavelength", "periods in L", "norm", "variation"]
    table_rows: list[list[Value]] = []
    groups = _group(frequencies, "length", "index", "frequency")
    for (length, index, frequency), rows in groups.items():
        wavelength = 2 * pi / frequency if frequency else None
        periods = train_length * frequency / (2 * pi)
        fractions = [_mean(rows, name) for name in ("norm", "variation")]
        table_rows.append([length, index, frequency, wavelength, periods, *fractions])
    title = "Rotary frequencies, mean over layers and heads"
    return make_table("rotations", "rotary", title, columns, table_rows, ROTARY_NOTE, key_columns=3)


def _parameter_table(learned: Sequence[Row]) -> InspectionTable:
    columns = ["parameter", "values", "quantity", "before", "after", "change"]
    table_rows: list[list[Value]] = [
        [
            name,
            len(rows),
            quantity,
            _rms(row["initial"] for row in rows),
            _rms(row["trained"] for row in rows),
            _rms(row["trained"] - row["initial"] for row in rows),
        ]
        for (name, quantity), rows in _group(learned, "parameter", "quantity").items()
    ]
    title = "Trained parameters"
    return make_table("encoding", "parameters", title, columns, table_rows, PARAMETERS_NOTE)


def _embedding_table(rows: Sequence[Row]) -> InspectionTable:
    columns = ["vectors", "count", "norm", "std", "diagonal ratio", "independent"]
    columns += ["diagonal fraction"]
    table_rows = [list(row.values()) for row in rows]
    title = "Token and position embeddings"
    return make_table("vectors", "embeddings", title, columns, table_rows, EMBEDDINGS_NOTE)


def _equal_token_table(rows: Sequence[Row]) -> InspectionTable:
    """Return the table of distances, with a row for each text and a column for each depth."""
    distances: dict[str, dict[int, Value]] = {}
    for row in rows:
        distances.setdefault(row["text"], {})[row["depth"]] = row["distance"]
        if row["different"] is not None:
            name = f"{row['text']}, different"
            distances.setdefault(name, {})[row["depth"]] = row["different"]
    depths = sorted({row["depth"] for row in rows})
    table_rows: list[list[Value]] = [
        [text, *(by_depth[depth] for depth in depths)] for text, by_depth in distances.items()
    ]
    title, columns = "Distance between two identical tokens", ["text", *map(str, depths)]
    return make_table("equal", "equal_tokens", title, columns, table_rows, EQUAL_NOTE)


def _raw_table(
    section: str, file: str, title: str, rows: Sequence[Row], note: str, *, printed: bool = False
) -> InspectionTable:
    """Return a table with all rows and columns unchanged."""
    table_rows = [list(row.values()) for row in rows]
    return make_table(section, file, title, list(rows[0]), table_rows, note, printed=printed)


def _group(rows: Sequence[Row], *keys: str) -> dict[tuple, list[Row]]:
    """Return the rows by the values of `keys`, in the order in which these first occur."""
    groups: dict[tuple, list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row[key] for key in keys), []).append(row)
    return groups


def _mean(rows: Sequence[Row], name: str) -> float:
    return sum(row[name] for row in rows) / len(rows)


def _rms(values: Iterable[float]) -> float:
    squares = [value**2 for value in values]
    return sqrt(sum(squares) / len(squares))
