"""Merges the curves of an encoding with its different swaps into one curve set."""

from collections.abc import Sequence
from dataclasses import replace

from posenc.config.paths import NO_SWAP
from posenc.report.curve_set import CurveSet
from posenc.report.encoding_styles import SWAPS
from posenc.report.run_labels import natural_key


def merge_swaps(curve_sets: Sequence[CurveSet]) -> list[CurveSet]:
    """Return the curve sets, with all swaps of an encoding merged into one set.

    Its curves are the encoding without a swap (`none`), followed by each swap. The merged sets
    follow the unswapped sets of the same evaluation key. An unswapped set is omitted if its only
    curve is repeated as `none` in a merged set. If there are curve sets of the swap `none`, their
    curves are used instead of the unswapped ones, because they were scored on the same tokens as
    the other swaps. The points of a curve do not change.
    """
    groups: dict[object, list[CurveSet]] = {}
    for curves in curve_sets:
        key = (replace(curves.evaluation_key, swap=None), curves.window)
        groups.setdefault(key, []).append(curves)
    return [merged for group in groups.values() for merged in _merge_group(group)]


def _merge_group(group: Sequence[CurveSet]) -> list[CurveSet]:
    """Return the curve sets of one measurement: unswapped sets, then merged sets."""
    merged_keys = dict.fromkeys(
        (curves.train_length, curve.label)
        for curves in group
        if curves.evaluation_key.swap is not None
        for curve in curves.curves
    )
    kept = [
        curves
        for curves in group
        if curves.evaluation_key.swap is None
        and (
            len(curves.curves) > 1
            or (curves.train_length, curves.curves[0].label) not in merged_keys
            or any(other.evaluation_key.swap == NO_SWAP for other in group)
        )
    ]
    return [*kept, *(_merged_set(group, *key) for key in merged_keys)]


def _merged_set(group: Sequence[CurveSet], train_length: int, label: str) -> CurveSet:
    """Return a set with a curve for each swap of the encoding `label`."""
    sources = sorted(
        (c for c in group if c.train_length == train_length and label in c.by_label), key=_sort_key
    )
    if any(curves.evaluation_key.swap == NO_SWAP for curves in sources):
        sources = [curves for curves in sources if curves.evaluation_key.swap is not None]
    names = [curves.evaluation_key.swap or NO_SWAP for curves in sources]
    counts = [curves.num_windows for curves in sources if curves.num_windows is not None]
    return replace(
        sources[0],
        evaluation_key=replace(sources[0].evaluation_key, swap=None),
        curves=tuple(
            replace(curves.by_label[label], label=name)
            for curves, name in zip(sources, names, strict=True)
        ),
        published=tuple(
            (name, published)
            for curves, name in zip(sources, names, strict=True)
            for other, published in curves.published
            if other == label
        ),
        num_windows=min(counts, default=None),
        swapped_encoding=label,
    )


def _sort_key(curves: CurveSet) -> tuple[object, ...]:
    """Return the sort key of a swap: the order of SWAPS, then its name."""
    name = curves.evaluation_key.swap or NO_SWAP
    option = name.partition(" ")[0]
    return (SWAPS.index(option) if option in SWAPS else len(SWAPS), natural_key(name))
