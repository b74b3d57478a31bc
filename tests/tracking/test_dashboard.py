"""The workspace and report show only keys that every run logs; saving again updates them."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from omegaconf import OmegaConf

from posenc.cli import main
from posenc.runs.evaluation_rows import merge_rows
from posenc.runs.files import append_jsonl, write_json
from posenc.runs.loss_arrays import merge_arrays
from posenc.runs.run_directory import RunDirectory
from posenc.tracking.wandb_tracker import WandbTracker

CLAIM = {
    "statement": "RoPE gets worse",
    "left": {"perplexity": {"encoding": "rope", "length": "4L"}},
    "is": "above",
    "right": {"perplexity": {"encoding": "rope", "length": "L"}},
}
PREMISE = {**CLAIM, "statement": "RoPE gets worse at once", "where": {"train_length": 64}}


@pytest.fixture
def experiment(folder, config, rows, evaluation_row, save_config) -> Path:
    """The folder of two finished runs, with different encodings and training lengths."""
    for encoding, length in (("rope", 64), ("alibi", 128)):
        changes = {"train_length": length, "choices": {"encoding": encoding}}
        run = save_config(folder, OmegaConf.merge(config, changes))
        for row in rows(1, 3):
            append_jsonl(run.metrics_file, row | {"validation_loss": 1.5})
        append_jsonl(run.timing_file, {"tokens_per_second": 100.0, "memory_mb": 10.0})
        lengths = (length, 2 * length, 4 * length)
        for protocol in ("nonoverlapping", "by_position"):
            results = [evaluation_row(n, n / 2, protocol=protocol, count=n) for n in lengths]
            merge_rows(run.evaluation_file, results)
        for n in lengths:
            name = f"f00d.validation.{n}"
            arrays = {f"{name}.sum": np.full(n, n / 200), f"{name}.count": np.ones(n, dtype=int)}
            merge_arrays(run.positions_file, arrays)
        run.status().replace(state="finished").write(run.status_file)
    plan = {"runs": [], "premises": [PREMISE], "claims": [CLAIM], "about": {"title": "Look"}}
    write_json(folder / "plan.json", plan)
    return folder


def posenc(command: str, folder: Path, *arguments: str) -> int:
    return main([command, folder.name, f"outputs_dir={folder.parent}", *arguments])


def test_a_run_with_a_corrupt_record_is_skipped(experiment, capsys) -> None:
    corrupt = next(path for path in experiment.iterdir() if path.name.startswith("alibi"))
    (corrupt / "mirror.json").write_text("{")
    assert posenc("dashboard", experiment, "--spec") == 0
    printed = capsys.readouterr().out
    assert f"{corrupt.name} was skipped" in printed and "mirror.json" in printed
    assert (experiment / "dashboard.json").is_file()


def build_spec(folder: Path) -> dict[str, Any]:
    assert posenc("dashboard", folder, "--spec") == 0
    return json.loads((folder / "dashboard.json").read_text())


def panels(node: Any) -> Iterator[dict[str, Any]]:
    """All panels in a specification."""
    if isinstance(node, dict):
        if "viewType" in node:
            yield node
        for child in node.values():
            yield from panels(child)
    elif isinstance(node, list):
        for child in node:
            yield from panels(child)


def panel_keys(panel: dict[str, Any]) -> dict[str, set[str]]:
    """The history, summary and config keys that a panel reads; KeyError for an unknown type."""
    config = panel["config"]
    keys = {
        "Run History Line Plot": lambda: {
            "history": {config["xAxis"], *config["metrics"]},
            "config": {config["groupBy"]},
        },
        "Scatter Plot": lambda: {"summary": {config["xAxis"], config["yAxis"]}},
        "Bar Chart": lambda: {"summary": set(config["metrics"]), "config": {config["groupBy"]}},
        "Media Browser": lambda: {"history": {f"{key}.path" for key in config["mediaKeys"]}},
        "Weave": lambda: {
            "history": {f"{config['panel2Config']['exp']['fromOp']['inputs']['key']['val']}.path"}
        },
        "Markdown Panel": dict,
        "Run Comparer": dict,
    }[panel["viewType"]]()
    for prefix in ("summary:", "summary_metrics."):
        keys = {k: {name.removeprefix(prefix) for name in v} for k, v in keys.items()}
    return {k: {name.removesuffix(".value") for name in v} for k, v in keys.items()}


def logged_by_every_run(offline_files) -> dict[str, set[str]]:
    """The history, summary and config keys that are in every offline run file."""

    def common(key_lists) -> set[str]:
        return set.intersection(*(set(keys) for keys in key_lists))

    return {
        "history": common([name for row in f.history() for name in row] for f in offline_files),
        "summary": common(f.summary["summary"] for f in offline_files),
        "config": common(f.config for f in offline_files),
    }


@pytest.mark.slow
def test_every_key_of_every_panel_is_logged_by_every_run(experiment, read_offline):
    for run in sorted(experiment.glob("*-s1-*")):
        tracker = WandbTracker()
        tracker.start(RunDirectory(run), RunDirectory(run).config())
        tracker.finish(failed=False)
    logged = logged_by_every_run(read_offline(experiment))
    spec = build_spec(experiment)
    all_panels = list(panels(spec))
    assert {"Run History Line Plot", "Scatter Plot", "Bar Chart", "Weave"} <= {
        panel["viewType"] for panel in all_panels
    }
    for panel in all_panels:
        for section, keys in panel_keys(panel).items():
            assert keys <= logged[section], panel
    for runset in runsets(spec):
        for column in runset["runFeed"]["columnOrder"]:
            section, key = column.split(":", 1)
            assert section == "run" or key in logged[section], column
        for rule in runset["filters"]["filters"]:
            assert rule["key"]["name"] in logged[rule["key"]["section"]]


def runsets(node: Any) -> Iterator[dict[str, Any]]:
    """All run sets in a specification."""
    if isinstance(node, dict):
        yield from node.get("runSets", [])
        for child in node.values():
            yield from runsets(child)
    elif isinstance(node, list):
        for child in node:
            yield from runsets(child)


def test_the_dashboard_has_verdicts_curves_and_panels_per_training_length(experiment):
    spec = build_spec(experiment)
    sections = spec["workspace"]["spec"]["section"]["panelBankConfig"]["sections"]
    assert [section["name"] for section in sections] == [
        "Claims",
        "Extrapolation",
        "Loss by position",
        "Quality against cost",
        "Training",
    ]
    first = sections[1]["panels"][0]["config"]
    assert first["metrics"] == ["extrapolation/nonoverlapping/perplexity"]
    assert (first["groupAgg"], first["groupArea"]) == ("mean", "minmax")
    assert first["xLogScale"] and first["yLogScale"]
    markdown = sections[0]["panels"][0]["config"]["value"]
    assert markdown.index("Premises: ") < markdown.index("Claims: ")
    assert "RoPE gets worse at once" in markdown and "premise not met" in markdown
    blocks = spec["report"]["spec"]["blocks"]
    grids = [b for b in blocks if b["type"] == "panel-grid"]
    rules = [rule for runset in runsets(grids) for rule in runset["filters"]["filters"]]
    assert {64, 128} <= {rule["value"] for rule in rules}
    grouped = {p["config"].get("groupBy") for b in grids for p in panels(b)} - {None}
    assert grouped == {"encoding.value"}
    assert spec == build_spec(experiment)


def test_the_swaps_of_a_curve_are_lines_of_one_panel(experiment, evaluation_row):
    run = RunDirectory(next(experiment.glob("rope-L64-*")))
    names = ("pi", "ntk", "yarn factor=4")
    rows = [evaluation_row(n, n / 3, swap=name, count=9) for n in (64, 128) for name in names]
    merge_rows(run.evaluation_file, rows)
    workspace = build_spec(experiment)["workspace"]
    plots = [p["config"] for p in panels(workspace) if p["viewType"] == "Run History Line Plot"]
    perplexities = [
        [key.removeprefix("extrapolation/").removesuffix("/perplexity") for key in plot["metrics"]]
        for plot in plots
        if plot["metrics"][0].endswith("nonoverlapping/perplexity")
    ]
    tables = [p for p in panels(workspace) if "swap_table" in str(p["config"])]
    assert [table["viewType"] for table in tables] == ["Weave"]
    swaps = ["ntk", "pi", "yarn-factor=4"]
    assert perplexities == [
        ["nonoverlapping"],
        ["nonoverlapping", *(f"{swap}/nonoverlapping" for swap in swaps)],
    ]


def test_a_corrupt_run_is_left_out(experiment, capsys):
    corrupt = next(experiment.glob("alibi-L128-*"))
    (corrupt / "metrics.jsonl").write_text("[\n")
    spec = build_spec(experiment)
    assert corrupt.name in (printed := capsys.readouterr().out) and "metrics.jsonl" in printed
    rules = [rule for runset in runsets(spec) for rule in runset["filters"]["filters"]]
    values = [rule["value"] for rule in rules]
    assert 64 in values and 128 not in values


def test_lines_are_grouped_by_variant_if_an_encoding_has_several(experiment, save_config):
    run = RunDirectory(next(experiment.glob("alibi-L128-*")))
    changes = {"choices": {"encoding": "rope"}, "encoding": {"spectrum": {"base": 5e5}}}
    variant = save_config(experiment, OmegaConf.merge(run.config(), changes))
    for file in run.path.iterdir():
        if file != run.config_file:
            file.rename(variant.path / file.name)
    shutil.rmtree(run.path)
    report = build_spec(experiment)["report"]
    grouped = {p["config"].get("groupBy") for p in panels(report)} - {None}
    assert grouped == {"variant.value"}


def test_saving_twice_updates_one_workspace_and_one_report(server, experiment, capsys):
    for _ in range(2):
        assert posenc("dashboard", experiment) == 0
    urls = [line.split(": ")[1] for line in capsys.readouterr().out.splitlines()]
    assert urls[:2] == urls[2:]
    kinds = sorted(view["type"] for view in server.views.values())
    assert kinds == ["project-view", "runs"]
    spec = build_spec(experiment)
    for view in server.views.values():
        part = "report" if view["type"] == "runs" else "workspace"
        assert json.loads(view["spec"]) == spec[part]["spec"]
        assert view["displayName"] == "posenc alibi-laptop"


def test_without_a_server_the_error_suggests_the_spec_flag(experiment, monkeypatch, capsys):
    monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")
    assert posenc("dashboard", experiment) == 1
    (message,) = capsys.readouterr().err.splitlines()
    assert "--spec" in message
