"""Published curves beside the measured ones."""

from collections.abc import Container

from posenc.claims.published import Published
from posenc.claims.selection import matches
from posenc.report.collect import Experiment
from posenc.report.curves import Measurement, Panel


def beside(panel: Panel, experiment: Experiment) -> dict[str, Published]:
    """The published perplexities of a panel's series, by label, where their lengths meet."""
    found = overlays(panel, experiment, ("perplexity",))
    places = set(panel.places)
    return {label: curve for label, curve in found.items() if places & set(curve.values)}


def overlays(panel: Panel, experiment: Experiment, units: Container[str]) -> dict[str, Published]:
    """The published curves of a panel's series in one of some units, by label."""
    labels = {series.label for series in panel.series}
    found: dict[str, Published] = {}
    for curve in experiment.published:
        if curve.unit not in units or curve.train_length != panel.train_length:
            continue
        if _of(panel.measurement, curve):
            found |= {run.label: curve for run in experiment.runs if matches(run.config, curve.of)}
    return {label: curve for label, curve in found.items() if label in labels}


def _of(measurement: Measurement, curve: Published) -> bool:
    """Whether a curve is of the panel's protocol, and of its split and corpus if it names any."""
    of = {**vars(measurement), "corpus": measurement.data_name}
    return all(of[key] == item for key, item in curve.rows.items())
