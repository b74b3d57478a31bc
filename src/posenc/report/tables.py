"""The extrapolation table: every number made into text once, whatever it is then written as."""

from collections.abc import Mapping
from dataclasses import dataclass

from posenc.claims.published import Published
from posenc.report.curves import Panel, Series

MISSING = "-"


@dataclass(frozen=True)
class Cell:
    """A number as it is read everywhere, and whether it is the lowest of its column."""

    text: str
    best: bool


@dataclass(frozen=True)
class Row:
    """One encoding: how many seeds, a cell for each length, the longest length's over L's.

    A published curve has a row of its own below the measured one, without seeds.
    """

    label: str
    seeds: str
    cells: tuple[Cell, ...]
    growth: str


@dataclass(frozen=True)
class Table:
    """Every series of a panel at every evaluation length.

    `of` says what its points are: loss in nats per token, or accuracy.
    """

    panel: Panel
    title: str
    of: str
    lengths: tuple[int, ...]
    rows: tuple[Row, ...]
    note: str

    @property
    def spans(self) -> list[str]:
        """The lengths told by the training length: all as multiples of L, or all as L+k."""
        return spans(self.lengths, self.panel.train_length)

    @property
    def growth(self) -> str:
        """The heading of the last column."""
        return f"{self.spans[-1]} / L"

    @property
    def caption(self) -> str:
        over = f"{self.growth}: at {self.lengths[-1]} tokens over at {self.panel.train_length}."
        return f"{self.note} {over}"


def table_of(panel: Panel, beside: Mapping[str, Published]) -> Table:
    """The perplexities of a panel; `beside` are the published curves of its series, by label."""
    lengths = tuple(int(at) for at in panel.places)
    best = {at: number_text(found[1].perplexity) for at in lengths if (found := panel.lowest(at))}
    rows: list[Row] = []
    for series in panel.series:
        rows.append(_row(series, best, panel.train_length))
        if found := beside.get(series.label):
            rows.append(_published_row(series.label, found, lengths, panel.train_length))
    title = f"Perplexity, trained at L = {panel.train_length}: {panel.measurement}"
    note = "Perplexity per token, mean over seeds; the lowest of a column is marked."
    if told := "; ".join(dict.fromkeys(curve.source for curve in beside.values())):
        note += f" Published, of their models on their data: {told}."
    return Table(panel, title, "loss in nats per token", lengths, tuple(rows), note)


def accuracy_table(panel: Panel) -> Table:
    """The accuracies of a task's panel, three decimals each."""
    lengths = tuple(int(at) for at in panel.places)
    points = {s.label: {at: s.at(at) for at in lengths} for s in panel.series}
    best = {
        at: max(f"{point.mean:.3f}" for of in points.values() if (point := of[at]))
        for at in lengths
    }
    rows = []
    for series in panel.series:
        texts = {at: f"{p.mean:.3f}" if p else MISSING for at, p in points[series.label].items()}
        far, near = series.at(lengths[-1]), series.at(panel.train_length)
        growth = number_text(far.mean / near.mean) if far and near and near.mean else MISSING
        cells = tuple(Cell(text, text == best[at]) for at, text in texts.items())
        rows.append(Row(series.label, seeds_text(series), cells, growth))
    title = f"Accuracy, trained at L = {panel.train_length}: {panel.measurement}"
    note = "Share of answers ranked first, mean over seeds; the highest of a column is marked."
    return Table(panel, title, "accuracy", lengths, tuple(rows), note)


def seeds_text(series: Series) -> str:
    counts = sorted({len(point.seeds) for point in series.points})
    return "-".join(str(count) for count in dict.fromkeys((counts[0], counts[-1])))


def spans(lengths: tuple[int, ...], train_length: int) -> list[str]:
    if all(at % train_length == 0 for at in lengths):
        return ["L" if at == train_length else f"{at // train_length}L" for at in lengths]
    return ["L" if at == train_length else f"L{at - train_length:+}" for at in lengths]


def number_text(value: float) -> str:
    """Two decimals as in the literature, fewer where they would mean nothing."""
    if value < 1000:
        return f"{value:.2f}"
    return f"{value:.0f}" if value < 1e6 else f"{value:.2e}"


def growth_of(series: Series, train_length: int, longest: int) -> float | None:
    """Perplexity at the longest length over that at the training length."""
    far, near = series.at(longest), series.at(train_length)
    return far.perplexity / near.perplexity if far and near else None


def _row(series: Series, best: dict[int, str], train_length: int) -> Row:
    points = {at: series.at(at) for at in best}
    texts = {at: number_text(p.perplexity) if p else MISSING for at, p in points.items()}
    growth = growth_of(series, train_length, max(best))
    return Row(
        label=series.label,
        seeds=seeds_text(series),
        cells=tuple(Cell(text, text == best[at]) for at, text in texts.items()),
        growth=MISSING if growth is None else number_text(growth),
    )


def _published_row(
    label: str, curve: Published, lengths: tuple[int, ...], train_length: int
) -> Row:
    texts = {length: number_text(value) for length, value in curve.values.items()}
    near, far = curve.values.get(train_length), curve.values.get(max(lengths))
    return Row(
        label=f"{label}, published",
        seeds=MISSING,
        cells=tuple(Cell(texts.get(length, MISSING), False) for length in lengths),
        growth=number_text(far / near) if near and far else MISSING,
    )
