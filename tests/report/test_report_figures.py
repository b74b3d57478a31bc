"""Every figure has the numbers of the runs: intervals, ratios, accuracies, bounds."""

import csv
import io
import math
import re
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from omegaconf import OmegaConf
from rich.console import Console

from posenc.data.build_data import data_source, saved_task
from posenc.data.dataset import Dataset
from posenc.encodings.spectra.base_bound import smallest_base
from posenc.report.write_report import write_report

SEEDS = (1, 2, 3)
SOURCE = "Some & Others 2022, Table 9"
SVG = "{http://www.w3.org/2000/svg}"


def points(index: Path, stem: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(index.with_name(f"{stem}.csv").read_text())))


def test_pngs_are_sharp_and_svgs_are_valid(trial_report: SimpleNamespace) -> None:
    report = trial_report.index.parent
    for stem in ("perplexity_by_length", "loss_by_position"):
        png = (report / f"{stem}.png").read_bytes()
        assert png.startswith(b"\x89PNG")
        assert int.from_bytes(png[16:20], "big") >= 1500  # pixels for two panels
        assert ET.fromstring((report / f"{stem}.svg").read_text()).tag == f"{SVG}svg"


def test_perplexity_by_length_is_the_geometric_mean_over_seeds(
    trial_report: SimpleNamespace,
) -> None:
    rows = {
        (row["train_length"], row["encoding"], row["length"]): row
        for row in points(trial_report.index, "perplexity_by_length")
    }
    row = rows["64", "rope", "256"]  # 3.55 at 64, two doublings of 0.12, seeds add 0.01 and 0.02
    assert float(row["loss"]) == pytest.approx(3.805)
    assert float(row["low"]) == pytest.approx(3.80)
    assert float(row["high"]) == pytest.approx(3.81)
    assert float(row["perplexity"]) == pytest.approx(math.exp(3.805), rel=1e-6)
    assert (row["seeds"], row["tokens"]) == ("2", "81920")


def test_relative_perplexities_are_paired_by_seed(three_seed_report: SimpleNamespace) -> None:
    """Seeds differ by 0.01 nats at every length, so that their ratios are equal."""
    rows = points(three_seed_report.index, "perplexity_relative")
    (row,) = [
        row
        for row in rows
        if (row["encoding"], row["published"], row["length"]) == ("alibi", "false", "256")
    ]
    assert float(row["relative_perplexity"]) == pytest.approx(np.exp(-0.04), rel=1e-5)
    assert float(row["low"]) == pytest.approx(float(row["high"]), rel=1e-5)
    published = {
        row["length"]: float(row["relative_perplexity"])
        for row in rows
        if row["published"] == "true"
    }
    assert published == {"64": 1.0, "128": 0.95, "512": 0.9}
    assert f"({SOURCE})".replace("&", "&amp;") in three_seed_report.index.read_text()


def test_a_task_has_accuracies_and_no_perplexities(task_report: SimpleNamespace) -> None:
    rows = {
        (row["data"], row["encoding"], row["length"]): row
        for row in points(task_report.index, "accuracy_by_length")
        if row["published"] == "false"
    }
    assert set(rows) == {
        (task, encoding, length)
        for task in ("task_copy", "task_even_pairs")
        for encoding in ("rope", "alibi")
        for length in ("64", "128", "256")
    }
    assert float(rows["task_copy", "rope", "128"]["accuracy"]) == pytest.approx(0.71)
    assert float(rows["task_copy", "alibi", "64"]["high"]) <= 1
    names = {file.stem for file in task_report.index.parent.iterdir()}
    assert not names & {"perplexity_by_length", "perplexity_relative", "extrapolation"}
    # the t interval of 0.95, 0.96 and 0.97 is 4.303 * 0.01 / sqrt(3)
    assert "**0.960 ±0.025**" in task_report.index.with_name("accuracy.md").read_text()
    assert "0.710" in task_report.printed and "Perplexity" not in task_report.printed


def test_a_published_accuracy_appears_only_for_its_task(task_report: SimpleNamespace) -> None:
    published = [
        (row["data"], row["encoding"], row["length"], row["accuracy"])
        for row in points(task_report.index, "accuracy_by_length")
        if row["published"] == "true"
    ]
    assert published == [("task_copy", "alibi", "64", "1"), ("task_copy", "alibi", "256", "0.7")]


def test_chance_is_drawn_only_for_the_built_in_task_of_the_runs(
    tmp_path: Path, fabricate: SimpleNamespace, console: Console
) -> None:
    task = {"_target_": "posenc.data.tasks.copy.Copy", "examples": 500, "alphabet_size": 16}
    symbols = {"_target_": "posenc.data.tokenizers.symbols.SymbolTokenizer", "_partial_": True}
    source = data_source(OmegaConf.create({"data": task, "tokenizer": symbols}))
    assert isinstance(source, Dataset)
    fingerprint = source.fingerprint
    row = {"data": fingerprint, "data_name": "copy", "protocol": "tasks", "accuracy": 0.5}
    tasks = {
        "built_in": task,
        "custom": {"_target_": "mine.Task"},
        "edited": {**task, "alphabet_size": 17},
    }
    for name, data in tasks.items():
        config = fabricate.config("rope", 64, 1, data=data, tokenizer=symbols)
        config["planned"]["fingerprint"] = fingerprint
        fabricate.run(tmp_path / name, config, [fabricate.row(64 * n, 1.0, **row) for n in (1, 2)])
        figure = write_report(tmp_path / name, console).with_name("accuracy_by_length.svg")
        assert ("chance (" in figure.read_text()) == (name == "built_in")


def test_a_report_imports_no_untrusted_code(
    tmp_path: Path, fabricate: SimpleNamespace, console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A saved configuration may come from someone else, so only built-in code may run."""
    (tmp_path / "malicious.py").write_text("raise SystemExit('code was run')\n")
    monkeypatch.syspath_prepend(tmp_path)
    code = {"_target_": "malicious.run"}
    task = {"_target_": "posenc.data.tasks.copy.Copy", "examples": 500, "alphabet_size": code}
    row = {"data": "c0ffee", "data_name": "copy", "protocol": "tasks", "accuracy": 0.5}
    config = fabricate.config("rope", 64, 1, data=task)
    config["planned"]["fingerprint"] = "c0ffee"
    fabricate.run(tmp_path / "sweep", config, [fabricate.row(64, 1.0, **row)])
    write_report(tmp_path / "sweep", console)
    assert "malicious" not in sys.modules


def test_a_report_does_not_open_the_text_that_a_saved_configuration_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opened: list[str] = []
    monkeypatch.setattr("posenc.data.text.find_files", lambda *call: opened.append(call[1]) or [])
    data = {"_target_": "posenc.data.text.TextCorpus", "paths": "private.txt"}
    assert saved_task({"data": data, "planned": {"fingerprint": "c0ffee"}}) is None
    assert not opened


def test_there_is_no_figure_of_speed(three_seed_report: SimpleNamespace) -> None:
    """Training speeds depend on the load of the machine; `posenc bench` compares speeds."""
    names = " ".join(file.name for file in three_seed_report.index.parent.iterdir())
    assert not re.search("cost|speed", names)
    assert "tokens per second" not in three_seed_report.index.read_text().partition("<script>")[0]


def write_positions(
    folder: Path, fabricate: SimpleNamespace, losses: dict[str, float], windows: dict[int, int]
) -> None:
    """Write runs of three seeds with L = 64; `windows` maps window lengths to numbers of windows.

    The loss at a position is that of the encoding, plus the seed, plus position / 1000.
    """
    for encoding, loss in losses.items():
        for seed in SEEDS:
            config, rows, positions = fabricate.config(encoding, 64, seed), [], {}
            for length, count in windows.items():
                key = f"{config['planned']['fingerprint']}.validation.{length}"
                values = loss + seed + np.arange(1, length + 1) / 1000
                positions[f"{key}.sum"] = values * count
                positions[f"{key}.count"] = np.full(length, count)
                changes = {"count": count * length, "protocol": "by_position"}
                rows.append(fabricate.row(length, float(values.mean()), **changes))
            fabricate.run(folder, config, rows, positions=positions)


def test_losses_by_position_are_relative_to_nope_and_paired_by_seed(
    tmp_path: Path, fabricate: SimpleNamespace, console: Console
) -> None:
    """Seeds differ by one nat, which cancels."""
    losses = {"rope": 3.0, "nope": 3.25, "alibi": 2.5}
    write_positions(tmp_path / "three", fabricate, losses, {128: 100})
    rows = points(write_report(tmp_path / "three", console), "loss_by_position")
    for encoding, loss in losses.items():
        encoding_rows = [row for row in rows if row["encoding"] == encoding]
        assert len(encoding_rows) > 4
        for row in encoding_rows:
            for column in ("loss_difference", "low", "high"):
                assert float(row[column]) == pytest.approx(loss - 3.25, abs=1e-6)


def test_positions_are_those_of_the_longest_length_with_enough_windows(
    tmp_path: Path, fabricate: SimpleNamespace, console: Console
) -> None:
    windows = {64: 400, 128: 200, 256: 60, 1024: 5}
    write_positions(tmp_path / "many", fabricate, {"rope": 3.0, "alibi": 2.5}, windows)
    index = write_report(tmp_path / "many", console)
    rows = [row for row in points(index, "loss_by_position") if row["encoding"] == "rope"]
    assert 128 < max(float(row["position"]) for row in rows) < 256
    assert "60 windows of 256" in index.read_text()
    # without nope, differences are relative to the first encoding, alibi
    assert {float(row["loss_difference"]) for row in rows} == {0.5}


def test_with_a_single_encoding_the_losses_themselves_are_shown(
    tmp_path: Path, fabricate: SimpleNamespace, console: Console
) -> None:
    write_positions(tmp_path / "one", fabricate, {"rope": 3.0}, {64: 100})
    rows = points(write_report(tmp_path / "one", console), "loss_by_position")
    assert {row["seeds"] for row in rows} == {"3"}
    assert 5 < min(float(row["loss"]) for row in rows) < max(float(row["loss"]) for row in rows)


def test_the_heat_map_shows_each_loss_minus_the_lowest_of_its_column(
    three_seed_report: SimpleNamespace,
) -> None:
    columns: dict[str, list[tuple[float, float]]] = {}
    for row in points(three_seed_report.index, "loss_by_position_heat"):
        cell = (float(row["loss"]), float(row["excess_loss"]))
        columns.setdefault(row["position"], []).append(cell)
    assert all(len(cells) == 2 for cells in columns.values())
    for cells in columns.values():
        best = min(loss for loss, _ in cells)
        differences = [loss - best for loss, _ in cells]
        assert [excess for _, excess in cells] == pytest.approx(differences, abs=2e-6)
    assert max(excess for cells in columns.values() for _, excess in cells) > 0.1


def test_the_figure_by_base_shows_the_bounds(base_report: SimpleNamespace) -> None:
    rows = points(base_report.index, "perplexity_by_base")
    assert {(row["length"], row["base"]) for row in rows} == {
        (f"{length} ({relative})", base)
        for length, relative in ((16, "L"), (32, "2L"))
        for base in ("100", "10000")
    }
    svg = base_report.index.with_name("perplexity_by_base.svg").read_text()
    for name, length in (("L", 16), ("2L", 32)):
        assert f"bound for {name}: {smallest_base(32, length):,.0f}" in svg
    assert "2 L / pi: 10" in svg


def test_the_figure_by_base_lacks_lengths_at_which_no_base_was_evaluated(
    tmp_path: Path, fabricate: SimpleNamespace, console: Console
) -> None:
    folder = tmp_path / "bases"
    for base in (100, 10000):
        config = fabricate.config("rope", 16, 1, encoding={"spectrum": {"base": base}})
        fabricate.run(folder, config, [fabricate.row(n, 3.0) for n in (16, 32)])
    config = fabricate.config("alibi", 16, 1)
    fabricate.run(folder, config, [fabricate.row(n, 3.0) for n in (16, 32, 64)])
    rows = points(write_report(folder, console), "perplexity_by_base")
    assert {row["length"] for row in rows} == {"16 (L)", "32 (2L)"}


def test_there_is_no_figure_by_base_if_another_setting_also_differs(
    tmp_path: Path, fabricate: SimpleNamespace, console: Console
) -> None:
    for seed, layout in enumerate(("interleaved", "half")):
        for base in (100, 10000):
            encoding = {"layout": layout, "spectrum": {"base": base}}
            config = fabricate.config("rope", 16, seed, encoding=encoding)
            fabricate.run(tmp_path / "two", config, [fabricate.row(16, 3.0)])
    index = write_report(tmp_path / "two", console)
    assert not index.with_name("perplexity_by_base.csv").exists()


def test_a_task_label_leaves_out_settings_that_all_curves_share(
    task_report: SimpleNamespace,
) -> None:
    labels = {row["encoding"] for row in points(task_report.index, "accuracy_by_length")}
    assert labels == {"rope", "alibi"}
