import csv
import io
import math
import xml.etree.ElementTree as ET
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from posenc.report import write_report
from posenc.report.curves import Measurement, Panel, Point, Series
from posenc.report.figures import spaced
from posenc.report.style import styles
from posenc.report.ticks import log_ticks, x_ticks
from posenc.runs.bins import binned

SVG = "{http://www.w3.org/2000/svg}"


def panel_of(families: dict[str, str]) -> Panel:
    point = Point(64, (3.0,), (1,), 100)
    series = tuple(Series(label, family, (point,)) for label, family in families.items())
    return Panel(Measurement("f", "d", "validation", "nonoverlapping", None, None), 64, series)


def test_figures_are_sharp_and_valid(reported: SimpleNamespace) -> None:
    report = reported.index.parent
    for stem in ("perplexity_by_length", "loss_by_position"):
        png = (report / f"{stem}.png").read_bytes()
        assert png.startswith(b"\x89PNG")
        assert int.from_bytes(png[16:20], "big") >= 1500  # two panels at 150 dots per inch or more
        assert ET.fromstring((report / f"{stem}.svg").read_text()).tag == f"{SVG}svg"


def test_a_figure_has_the_numbers_of_its_csv(reported: SimpleNamespace) -> None:
    report = reported.index.parent
    text = (report / "perplexity_by_length.csv").read_text()
    rows = {
        (r["train_length"], r["encoding"], r["length"]): r
        for r in csv.DictReader(io.StringIO(text))
    }
    row = rows["64", "rope", "256"]  # 3.55 at 64, two doublings of 0.12, seeds add 0.01 and 0.02
    assert float(row["loss"]) == pytest.approx(3.805)
    assert float(row["low"]) == pytest.approx(3.80)
    assert float(row["high"]) == pytest.approx(3.81)
    assert float(row["perplexity"]) == pytest.approx(math.exp(3.805), rel=1e-6)
    assert (row["seeds"], row["tokens"]) == ("2", "81920")


def test_positions_are_of_the_longest_window(
    tmp_path: Path, fabricate: SimpleNamespace, console: Console
) -> None:
    rows = [fabricate.row(length, 3.0, protocol="by_position") for length in (2, 4)]
    positions = {
        "f00dfeed0123.validation.2.sum": np.array([9.0, 9.0]),
        "f00dfeed0123.validation.2.count": np.array([1, 1]),
        "f00dfeed0123.validation.4.sum": np.array([8.0, 6.0, 4.0, 2.0]),
        "f00dfeed0123.validation.4.count": np.array([2, 2, 2, 1]),
    }
    config = fabricate.config("alibi", 2, 1)
    fabricate.run(tmp_path / "short", config, rows, positions=positions)
    report = write_report(tmp_path / "short", console).parent
    text = (report / "loss_by_position.csv").read_text()
    found = [(float(r["position"]), float(r["loss"])) for r in csv.DictReader(io.StringIO(text))]
    assert found == [(1, 4.0), (2, 3.0), (3, 2.0), (4, 2.0)]


@given(st.integers(1, 3000), st.sampled_from([1, 48, 64, 500, 512]))
def test_bins_cover_every_token_once_and_part_at_the_training_length(
    length: int, train_length: int
) -> None:
    counts = np.arange(1, length + 1)
    bins = binned(np.ones(length), counts, train_length)
    assert sum(tokens for _, _, tokens in bins) == counts.sum()
    assert sum(loss * tokens for _, loss, tokens in bins) == pytest.approx(length)
    centres = [at for at, _, _ in bins]
    assert centres == sorted(centres)
    within = sum(tokens for at, _, tokens in bins if at <= train_length)
    assert within == counts[:train_length].sum()


def test_the_training_length_is_always_a_tick() -> None:
    assert x_ticks(60, 1100, 64) == [64, 128, 256, 512, 1024]
    assert x_ticks(0.9, 17000, 512) == [2, 8, 32, 128, 512, 2048, 8192]
    assert 512 in x_ticks(500, 16000, 512)


@given(st.floats(1.5, 1e6), st.floats(4, 1e5))
def test_a_log_axis_has_readable_ticks(low: float, ratio: float) -> None:
    ticks = log_ticks(low, low * ratio)
    assert 2 <= len(ticks) <= 15
    assert all(low <= tick <= low * ratio for tick in ticks)


@given(st.floats(1.5, 1e6), st.floats(1.05, 3))
def test_a_short_log_axis_has_several_ticks_too(low: float, ratio: float) -> None:
    ticks = log_ticks(low, low * ratio)
    assert 3 <= len(ticks) <= 15
    assert all(low <= tick <= low * ratio for tick in ticks)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_end_labels_never_overlap(heights: list[float]) -> None:
    placed = spaced(sorted(heights), 0.056)
    assert all(b - a >= 0.056 - 1e-9 for a, b in pairwise(placed))
    assert max(placed) <= 1 + 1e-9


def test_series_differ_without_colour() -> None:
    names = ("sinusoidal", "rope", "alibi", "nope", "t5", "learned", "kerple", "fire")
    looks = styles([panel_of({name: name for name in names})])
    assert len({(look.marker, look.dashes) for look in looks.values()}) == len(names)
    assert len({look.symbol for look in looks.values()}) == len(names)


def test_a_ladder_of_one_family_shares_a_scale_and_others_keep_their_colours() -> None:
    ladder = {f"rope base={10**n}": "rope" for n in range(2, 7)}
    looks = styles([panel_of(ladder | {"alibi": "alibi"})])
    brightness = [
        sum(int(looks[label].colour[i : i + 2], 16) for i in (1, 3, 5)) for label in ladder
    ]
    assert brightness == sorted(brightness)
    assert looks["alibi"].colour == styles([panel_of({"alibi": "alibi"})])["alibi"].colour
