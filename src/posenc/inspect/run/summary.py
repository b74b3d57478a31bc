"""The tables of a run's page: some rows as they were measured, others in the mean over heads."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from math import pi, sqrt

from posenc.inspect.findings import Cell, Table
from posenc.inspect.run.measure import Measured
from posenc.inspect.run.scores import REGIONS
from posenc.inspect.run.tables import Row

MEANS = ("entropy", "distance", "first", "own", "previous", "past", "moved")
HEADS = (
    "Queries of the last half of windows of L, and those past L of longer ones. entropy is that of"
    " the weights, in nats; distance the mean distance of attention, in tokens; first, own,"
    " previous and past are the shares of the window's first token, of the query's own, of the one"
    " before and of those L or more back. moved says how much of the attention to the last L/2"
    " tokens lies at others of these distances than in windows of L (total variation, 0 to 1):"
    " attention that thins out over more keys has not moved."
)
SCORES = (
    "q . k / sqrt(d) and what the encoding adds. within: queries within L. Of queries past L, near"
    " are keys at distances that training has shown, far those L or more back. A step from within"
    " to near that the longer distances there do not explain says that positions past L are strange"
    " to the layer; one from near to far, distances past L."
)
ROTARY = (
    "norm is the share of |q_i| |k_j|, the most that a frequency could give to the score (Barbero"
    " et al. 2024); variation the share of what differs between the keys of a query, which the"
    " softmax sees: below 0, a frequency works against the others. Each sums to 1. turns are those"
    " of a window of L: below 1, the frequency has never turned once in training."
)
EMBEDDINGS = (
    "Norms as they enter the stream. diagonal/rest: the mean of the covariance's diagonal over the"
    " mean size of its other elements; independent: what as many vectors of independent channels"
    " would give; diagonal share: the diagonal's part of the sum of squares (article 000)."
)
EQUAL = (
    "|a - b| / sqrt(|a|^2 + |b|^2) of the stream at two equal tokens, before the first layer"
    " (0) and after each: 0 where they are one, 1 where they are orthogonal. sentence: the"
    " last token that is there twice; one token alone: the same places where all tokens are that"
    " one; text: every token and the last equal one before it. different: pairs of unequal tokens."
)


def summaries(found: Measured, train_length: int) -> list[Table]:
    """Every table that there are rows for."""
    rows = found.tables
    made = [
        _layers(rows["heads"]),
        _whole("attention", "heads", "Attention of every head", rows["heads"], HEADS),
        _regions(rows["scores"]),
        _whole("scores", "scores", "Scores of every head", rows["scores"], SCORES),
    ]
    if "frequencies" in rows:
        made.append(_rotary(rows["frequencies"], train_length))
    if "gates" in rows:
        made.append(_gates(rows["gates"]))
    if "learned" in rows:
        made.append(_parameters(rows["learned"]))
    return [*made, _embeddings(rows["embeddings"]), _equal(rows["equal_tokens"])]


def _layers(heads: Sequence[Row]) -> Table:
    columns = ["length", "layer", *MEANS, "most", "by head"]
    lines: list[list[Cell]] = []
    for (length, layer), group in _by(heads, "length", "layer"):
        most = max(group, key=lambda row: row["moved"])
        means = [_mean(group, name) for name in MEANS]
        told = [most["moved"], most["head"]] if most["moved"] else [None, None]
        lines.append([length, layer, *means, *told])
    return Table("attention", "layers", "Attention by layer", columns, lines, HEADS)


def _regions(scores: Sequence[Row]) -> Table:
    """Each layer's scores in the longest windows, all heads together."""
    longest = max(row["length"] for row in scores)
    columns = ["layer", "region", "mean", "std", "lowest", "highest"]
    lines: list[list[Cell]] = []
    for (layer, region), rows in _by(
        [row for row in scores if row["length"] == longest], "layer", "region"
    ):
        mean = _mean(rows, "mean")
        squares = sum(row["std"] ** 2 + row["mean"] ** 2 for row in rows) / len(rows)
        ends = min(row["lowest"] for row in rows), max(row["highest"] for row in rows)
        lines.append([layer, region, mean, sqrt(max(0.0, squares - mean**2)), *ends])
    lines.sort(key=lambda line: (line[0], REGIONS.index(str(line[1]))))
    title = f"Scores by layer in windows of {longest} tokens"
    return Table("scores", "score_regions", title, columns, lines, SCORES)


def _rotary(frequencies: Sequence[Row], train_length: int) -> Table:
    """Each frequency in the mean over layers and heads."""
    columns = ["length", "number", "frequency", "wavelength", "turns in L", "norm", "variation"]
    lines: list[list[Cell]] = [
        [
            length,
            number,
            rows[0]["frequency"],
            2 * pi / rows[0]["frequency"] if rows[0]["frequency"] else None,
            train_length * rows[0]["frequency"] / (2 * pi),
            _mean(rows, "norm"),
            _mean(rows, "variation"),
        ]
        for (length, number), rows in _by(frequencies, "length", "number")
    ]
    title = "Rotary frequencies, in the mean over layers and heads"
    return Table("rotations", "rotary", title, columns, lines, ROTARY)


def _gates(gates: Sequence[Row]) -> Table:
    caption = (
        "ln f of the gates that tokens set: over 1 / |mean| tokens a score falls by 1. below half:"
        " the share of gates below 1/2."
    )
    return _whole("encoding", "gates", "Gates", gates, caption, printed=True)


def _parameters(learned: Sequence[Row]) -> Table:
    columns = ["parameter", "numbers", "of", "before", "after", "changed by"]
    lines: list[list[Cell]] = [
        [
            name,
            len(rows),
            quantity,
            _size(row["initial"] for row in rows),
            _size(row["trained"] for row in rows),
            _size(row["trained"] - row["initial"] for row in rows),
        ]
        for (name, quantity), rows in _by(learned, "parameter", "quantity")
    ]
    caption = "Root mean squares, before training and after. Every number is in learned.csv."
    return Table("encoding", "parameters", "What was learned", columns, lines, caption)


def _embeddings(rows: Sequence[Row]) -> Table:
    columns = ["vectors", "count", "norm", "std", "diagonal/rest", "independent"]
    lines = [list(row.values()) for row in rows]
    title = "Tokens and positions as they enter the stream"
    return Table("vectors", "embeddings", title, [*columns, "diagonal share"], lines, EMBEDDINGS)


def _equal(rows: Sequence[Row]) -> Table:
    """Cases below each other, depths side by side."""
    apart: dict[str, dict[int, Cell]] = {}
    for row in rows:
        apart.setdefault(row["where"], {})[row["depth"]] = row["apart"]
        if row["different"] is not None:
            name = f"{row['where']}, different"
            apart.setdefault(name, {})[row["depth"]] = row["different"]
    depths = sorted({row["depth"] for row in rows})
    lines: list[list[Cell]] = [
        [where, *(of_depth[depth] for depth in depths)] for where, of_depth in apart.items()
    ]
    title = "How far apart two equal tokens end up"
    return Table("equal", "equal_tokens", title, ["where", *map(str, depths)], lines, EQUAL)


def _whole(
    section: str, file: str, title: str, rows: Sequence[Row], caption: str, *, printed: bool = False
) -> Table:
    """Rows as they were measured."""
    lines = [list(row.values()) for row in rows]
    return Table(section, file, title, list(rows[0]), lines, caption, printed)


def _by(rows: Sequence[Row], *keys: str) -> Iterator[tuple[tuple, list[Row]]]:
    """Rows that are alike in `keys`, in the order of their first one."""
    order = {key: n for n, key in enumerate(dict.fromkeys(_key(row, keys) for row in rows))}
    ordered = sorted(rows, key=lambda row: order[_key(row, keys)])
    for key, group in groupby(ordered, key=lambda row: _key(row, keys)):
        yield key, list(group)


def _key(row: Row, keys: Sequence[str]) -> tuple:
    return tuple(row[key] for key in keys)


def _mean(rows: Sequence[Row], name: str) -> float:
    return sum(row[name] for row in rows) / len(rows)


def _size(values: Iterable[float]) -> float:
    """The root mean square."""
    squares = [value**2 for value in values]
    return sqrt(sum(squares) / len(squares))
