"""Curves by evaluation length, position or training tokens; each point is a mean over seeds.

The values of a curve share an `EvaluationKey`; reports show it as text.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from statistics import fmean
from typing import Any

import numpy as np

from posenc.config.errors import plural
from posenc.report.bootstrap import BootstrapInterval, bootstrap_interval
from posenc.report.confidence import Band, band, format_range
from posenc.report.published_curves import PublishedCurve
from posenc.report.scale import exp, format_number
from posenc.runs.loss_arrays import BlockSums

PROTOCOL_DESCRIPTIONS = {
    "nonoverlapping": (
        "non-overlapping windows",
        "the text is split into consecutive windows of the evaluation length; every token is scored"
        " once, with the preceding tokens of its window as context",
    ),
    "by_position": (
        "by position",
        "non-overlapping windows, with losses averaged at each position in the window",
    ),
    "sliding": (
        "sliding window",
        "a window of the evaluation length advances by the stride and scores that many tokens at"
        " its end (the first window scores all of its tokens); every token is scored once",
    ),
    "last_k": (
        "last tokens of each window",
        "the text is split into consecutive windows of the evaluation length; the last"
        " tokens of each window are scored",
    ),
    "fixed_target": (
        "fixed targets",
        "the same target tokens at every length: the last tokens of each window",
    ),
    "tasks": (
        "task answers",
        "sequences of the largest size that fits in the evaluation length; each answer token is"
        " scored, given the correct preceding answer tokens",
    ),
}
"""Protocol -> its name and its description."""
SWAP_NAMES = {
    "pi": "position interpolation (PI)",
    "ntk": "NTK-aware scaling",
    "yarn": "YaRN",
    "dynamic_ntk": "dynamic NTK",
    "llama3": "Llama 3 scaling",
    "log_n": "log-n scaling",
    "temperature": "attention temperature",
    "window": "an attention window",
}


@dataclass(frozen=True)
class EvaluationKey:
    """The fields that identify an evaluation row, except for its length, `at_tokens` and budget."""

    data: str
    data_name: str
    split: str
    protocol: str
    stride: int | None
    swap: str | None

    def __str__(self) -> str:
        protocol, _ = PROTOCOL_DESCRIPTIONS.get(self.protocol, (self.protocol, ""))
        if self.stride is None:
            stride = ""
        elif self.protocol == "sliding":
            stride = f", stride {self.stride}"
        else:
            stride = f", {plural(self.stride, 'token')} per window"
        name, *settings = (self.swap or "").split(" ")
        swap = f", with {' '.join([SWAP_NAMES.get(name, name), *settings])}" if self.swap else ""
        return f"{self.data_name} {self.split}, {protocol}{stride}{swap}"


@dataclass(frozen=True)
class DisplayedQuantity:
    """The quantity that tables show for a curve set, such as the perplexity for losses.

    `from_mean` converts a mean over seeds to the quantity, and `format` formats the quantity.
    `mean_name` is the name of that mean in tooltips. `choose` is the function that returns the best
    value: min or max. `note` explains the quantity below a table.
    """

    name: str
    from_mean: Callable[[float], float]
    format: Callable[[float], str]
    choose: Callable[..., Any]
    mean_name: str
    note: str

    def format_mean(self, point: "Point") -> str:
        """Format the quantity at a point, computed from the mean over its seeds."""
        return self.format(self.from_mean(point.mean))


PERPLEXITY = DisplayedQuantity(
    "perplexity",
    from_mean=exp,  # of `Point.mean`, the mean over seeds of the losses in nats per token
    format=format_number,
    choose=min,
    mean_name="loss in nats per token",
    note="Perplexity per token: the exponential of the mean loss over seeds, which is the geometric"
    " mean of the seeds' perplexities. Lower is better.",
)
ACCURACY = DisplayedQuantity(
    "accuracy",
    from_mean=float,
    format="{:.3f}".format,
    choose=max,
    mean_name="accuracy",
    note="Fraction of answer tokens that the model predicts (top-1), given the correct preceding"
    " answer tokens; mean over seeds. Higher is better.",
)


@dataclass(frozen=True)
class Point:
    """The values of several seeds at one `x`: a length, a position or a number of training tokens.

    `values`, `blocks` and `end_losses` have one entry per seed, in the order of `seeds`. For
    losses, the values are the `loss` of each seed's evaluation row (see report/curves.py). `tokens`
    is the number of scored tokens that each value averages over, or the largest such number if
    `tokens_differ` between seeds, for example because of a time budget.
    """

    x: float
    values: tuple[float, ...]
    seeds: tuple[int, ...]
    tokens: int
    blocks: tuple[BlockSums | None, ...]
    end_losses: tuple[float | None, ...]
    tokens_differ: bool = False

    @cached_property
    def band(self) -> Band:
        return band(self.values)

    @cached_property
    def text_interval(self) -> BootstrapInterval | None:
        """The bootstrap interval for a mean loss; None if blocks are missing or too few."""
        blocks = self.blocks_of(self.seeds)
        return bootstrap_interval(blocks) if blocks else None

    @property
    def mean(self) -> float:
        return fmean(self.values)

    def blocks_of(self, seeds: Collection[int]) -> list[BlockSums]:
        """Return the blocks for some of the seeds; empty if any of them are missing."""
        by_seed = dict(zip(self.seeds, self.blocks, strict=True))
        blocks = [sums for seed in seeds if (sums := by_seed[seed]) is not None]
        return blocks if len(blocks) == len(seeds) else []

    def mean_over(self, seeds: Collection[int]) -> float:
        """Return the mean over some of the seeds."""
        return fmean(v for seed, v in zip(self.seeds, self.values, strict=True) if seed in seeds)

    def differences(self, other: "Point") -> list[float]:
        """Return the values minus those of another point, for each seed that both have."""
        others = dict(zip(other.seeds, other.values, strict=True))
        pairs = zip(self.seeds, self.values, strict=True)
        return [value - others[seed] for seed, value in pairs if seed in others]


@dataclass(frozen=True)
class Curve:
    """One curve; curves with the same `encoding` differ in other settings."""

    label: str
    encoding: str
    points: tuple[Point, ...]

    def point_at(self, x: float) -> Point | None:
        return next((point for point in self.points if point.x == x), None)

    @property
    def seeds(self) -> str:
        """The number of seeds per point as text: "3", or "1-3" if it varies."""
        return format_range({len(point.seeds) for point in self.points})


@dataclass(frozen=True)
class CurveSet:
    """Curves with the same training length and, except for the length, the same evaluation.

    `published` has pairs of a measured curve's label and a published curve to compare it with.
    `window` is the evaluation length if `x` is something else, such as a position, and
    `num_windows` is the number of windows. `ngrams` maps the orders of n-gram models, trained
    on the runs' training tokens, to their losses on the same text (means over seeds). `chance` is
    the accuracy of guessing, if the curves are accuracies on a task for which it is known. If the
    curves are one encoding with different swaps, `swapped_encoding` is the label of that encoding.
    """

    evaluation_key: EvaluationKey
    train_length: int
    curves: tuple[Curve, ...]
    published: tuple[tuple[str, PublishedCurve], ...] = ()
    window: int | None = None
    num_windows: int | None = None
    ngrams: Mapping[int, float] = field(default_factory=dict)
    chance: float | None = None
    swapped_encoding: str | None = None
    quantity: DisplayedQuantity = PERPLEXITY

    @property
    def x_values(self) -> list[float]:
        """Every `x` at which any curve has a point: lengths, positions or training tokens."""
        return sorted({point.x for curve in self.curves for point in curve.points})

    @property
    def title(self) -> str:
        """The title of the curves' table."""
        name = self.quantity.name.capitalize()
        name += f" of {self.swapped_encoding} with swaps" if self.swapped_encoding else ""
        return f"{name}, trained at L = {self.train_length}: {self.evaluation_key}"

    def length_ratio(self, curve: Curve, length: float) -> float | None:
        """Return the quantity at `length` divided by that at L, over the seeds that have both.

        Returns None if there is no such seed, or if the quantity at L is 0.
        """
        points = curve.point_at(length), curve.point_at(self.train_length)
        seeds = set.intersection(*({*point.seeds} if point else set() for point in points))
        if not seeds:
            return None
        value, reference = (
            self.quantity.from_mean(point.mean_over(seeds)) for point in points if point
        )
        return value / reference if reference else None

    @property
    def by_label(self) -> dict[str, Curve]:
        return {curve.label: curve for curve in self.curves}

    @property
    def key(self) -> dict[str, object]:
        """The fields that identify the set: the first columns of CSV files."""
        names = ("split", "protocol", "stride", "swap")
        return {
            "data": self.evaluation_key.data_name,
            **{name: getattr(self.evaluation_key, name) for name in names},
            "train_length": self.train_length,
            **({"encoding": self.swapped_encoding} if self.swapped_encoding else {}),
        }

    @property
    def label_heading(self) -> str:
        """The heading of the column that has the curve labels."""
        return "swap" if self.swapped_encoding else "encoding"

    @property
    def setting(self) -> str:
        """The training length and, if the curves are swaps of one encoding, that encoding."""
        swapped = f", {self.swapped_encoding} with swaps" if self.swapped_encoding else ""
        return f"L = {self.train_length}{swapped}"

    @property
    def best_ngram(self) -> tuple[int, float] | None:
        """The order and the perplexity of the n-gram model with the lowest loss."""
        if not self.ngrams:
            return None
        order = min(self.ngrams, key=self.ngrams.__getitem__)
        return order, exp(self.ngrams[order])

    def published_in(self, *units: str) -> dict[str, PublishedCurve]:
        return {label: curve for label, curve in self.published if curve.unit in units}


def spread(values: Sequence[float], count: int) -> list[float]:
    """Return up to `count` of the values, evenly spread from the first to the last."""
    indices = np.linspace(0, len(values) - 1, min(count, len(values)))
    return [values[round(i)] for i in indices]


def describe_lengths(lengths: Iterable[float], train_length: int) -> list[str]:
    """Return lengths relative to the training length L: all as kL, or all as L+k."""
    lengths = [int(length) for length in lengths]
    if all(length % train_length == 0 for length in lengths):
        return ["L" if n == train_length else f"{n // train_length}L" for n in lengths]
    return ["L" if n == train_length else f"L{n - train_length:+}" for n in lengths]


def select_main_evaluation(curve_sets: Sequence[CurveSet]) -> list[CurveSet]:
    """Return the curve sets of the main evaluation, which is that of the first set."""
    return [c for c in curve_sets if c.evaluation_key == curve_sets[0].evaluation_key]
