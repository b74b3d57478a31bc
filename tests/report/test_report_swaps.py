"""Losses by position of one run under several swaps stay apart."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np

from posenc.report.collect import read_experiment
from posenc.report.panels import position_panels


def test_positions_of_every_swap_are_read_from_their_own_arrays(
    tmp_path: Path, fabricate: SimpleNamespace
) -> None:
    """One text with a dot in it, and one swap measured at fewer lengths than the others."""
    losses = {(None, 4): 3.0, (None, 2): 1.0, ("yarn factor=2.5", 4): 5.0, ("pi", 2): 7.0}
    rows, positions = [], {}
    for (swap, length), loss in losses.items():
        rows.append(fabricate.row(length, loss, protocol="by_position", swap=swap))
        name = f"f00dfeed0123.validation.{length}{'' if swap is None else f'.{swap}'}"
        positions |= {f"{name}.sum": np.full(length, 10 * loss), f"{name}.count": [10] * length}
    fabricate.run(tmp_path / "swaps", fabricate.config("rope", 2, 1), rows, positions=positions)
    panels = position_panels(read_experiment(tmp_path / "swaps"))
    found = {
        (panel.measurement.swap, panel.window): {point.mean for point in panel.series[0].points}
        for panel in panels
    }
    assert found == {(None, 4): {3.0}, ("yarn factor=2.5", 4): {5.0}, ("pi", 2): {7.0}}
