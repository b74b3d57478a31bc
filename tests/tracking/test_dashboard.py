"""The dashboard's specification against what runs really log, and against a server."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from omegaconf import OmegaConf

from posenc.cli import main
from posenc.runs.evaluation_rows import merge_positions, merge_rows
from posenc.runs.files import append_line, write_json
from posenc.runs.metrics import MetricsLog
from posenc.runs.run_directory import RunDirectory
from posenc.tracking.wandb_run import Wandb

CLAIM = {
    "says": "RoPE gets worse",
    "left": {"perplexity": {"encoding": "rope", "length": "4L"}},
    "is": "above",
    "right": {"perplexity": {"encoding": "rope", "length": "L"}},
}


@pytest.fixture
def experiment(folder, config, rows, measured) -> Path:
    """Two encodings, each at its training length, as `posenc train` leaves their folders."""
    for encoding, length in (("rope", 64), ("alibi", 128)):
        run = RunDirectory(folder / f"{encoding}-L{length}-s1-00000000")
        run.path.mkdir(parents=True)
        of_run = {"train_length": length, "choices": {"encoding": encoding}}
        OmegaConf.save(OmegaConf.merge(config, of_run), run.config_file)
        for row in rows(1, 3):
            MetricsLog(run.metrics_file).append(row | {"validation_loss": 1.5})
        append_line(run.timing_file, {"tokens_per_second": 100.0, "memory_mb": 10.0})
        lengths = (length, 2 * length, 4 * length)
        for protocol in ("nonoverlapping", "by_position"):
            told = [measured(at, at / 2, protocol=protocol, count=9) for at in lengths]
            merge_rows(run.evaluation_file, told)
        for at in lengths:
            name = f"f00d.validation.{at}"
            arrays = {f"{name}.sum": np.ones(at), f"{name}.count": np.ones(at, dtype=int)}
            merge_positions(run.positions_file, arrays)
        run.status().but(state="finished").write(run.status_file)
    write_json(folder / "plan.json", {"runs": [], "claims": [CLAIM], "about": {"title": "Look"}})
    return folder


def posenc(command: str, folder: Path, *words: str) -> int:
    return main([command, folder.name, f"outputs_dir={folder.parent}", *words])


def spec_of(folder: Path) -> dict[str, Any]:
    assert posenc("dashboard", folder, "--spec") == 0
    return json.loads((folder / "dashboard.json").read_text())


def panels(node: Any) -> Iterator[dict[str, Any]]:
    """Every panel, however deep."""
    if isinstance(node, dict):
        if "viewType" in node:
            yield node
        for child in node.values():
            yield from panels(child)
    elif isinstance(node, list):
        for child in node:
            yield from panels(child)


def named(panel: dict[str, Any]) -> dict[str, set[str]]:
    """What a panel reads, by where it has to be found; KeyError for a kind not known here."""
    config = panel["config"]
    summary = {"summary:", "summary_metrics."}
    read = {
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
    for prefix in summary:
        read = {k: {name.removeprefix(prefix) for name in v} for k, v in read.items()}
    return {k: {name.removesuffix(".value") for name in v} for k, v in read.items()}


def logged(fragments) -> dict[str, set[str]]:
    """What every fragment of an experiment has, as W&B's own reader tells it."""

    def common(keys) -> set[str]:
        return set.intersection(*(set(key) for key in keys))

    return {
        "history": common([name for row in f.history() for name in row] for f in fragments),
        "summary": common(f.summary["summary"] for f in fragments),
        "config": common(f.config for f in fragments),
    }


def test_every_field_of_every_panel_is_logged_by_every_run(experiment, inspect):
    for run in sorted(experiment.glob("*-s1-*")):
        tracker = Wandb()
        tracker.start(RunDirectory(run), RunDirectory(run).config())
        tracker.finish(failed=False)
    there = logged(inspect(experiment))
    spec = spec_of(experiment)
    shown = list(panels(spec))
    assert {"Run History Line Plot", "Scatter Plot", "Bar Chart", "Weave"} <= {
        panel["viewType"] for panel in shown
    }
    for panel in shown:
        for where, names in named(panel).items():
            assert names <= there[where], panel
    for runset in runsets(spec):
        for column in runset["runFeed"]["columnOrder"]:
            where, name = column.split(":", 1)
            assert where == "run" or name in there[where], column
        for rule in runset["filters"]["filters"]:
            assert rule["key"]["name"] in there[rule["key"]["section"]]


def runsets(node: Any) -> Iterator[dict[str, Any]]:
    if isinstance(node, dict):
        yield from node.get("runSets", [])
        for child in node.values():
            yield from runsets(child)
    elif isinstance(node, list):
        for child in node:
            yield from runsets(child)


def test_the_specification_answers_the_question(experiment):
    spec = spec_of(experiment)
    sections = spec["workspace"]["spec"]["section"]["panelBankConfig"]["sections"]
    assert [section["name"] for section in sections] == [
        "Claims",
        "Extrapolation",
        "Loss by position",
        "Cost against quality",
        "Training",
    ]
    first = sections[1]["panels"][0]["config"]
    assert first["metrics"] == ["extrapolation/nonoverlapping/perplexity"]
    assert (first["groupAgg"], first["groupArea"]) == ("mean", "minmax")
    assert first["xLogScale"] and first["yLogScale"]
    assert "RoPE gets worse" in sections[0]["panels"][0]["config"]["value"]
    blocks = spec["report"]["spec"]["blocks"]
    facets = [b for b in blocks if b["type"] == "panel-grid"]
    rules = [rule for runset in runsets(facets) for rule in runset["filters"]["filters"]]
    assert {64, 128} <= {rule["value"] for rule in rules}
    grouped = {p["config"].get("groupBy") for b in facets for p in panels(b)} - {None}
    assert grouped == {"encoding.value"}
    assert spec == spec_of(experiment)


def test_a_group_for_each_variant_where_an_encoding_has_several(experiment):
    run = RunDirectory(experiment / "alibi-L128-s1-00000000")
    other = {"choices": {"encoding": "rope"}, "encoding": {"spectrum": {"base": 5e5}}}
    OmegaConf.save(OmegaConf.merge(run.config(), other), run.config_file)
    report = spec_of(experiment)["report"]
    grouped = {p["config"].get("groupBy") for p in panels(report)} - {None}
    assert grouped == {"variant.value"}


def test_saved_twice_it_is_one_workspace_and_one_report(server, experiment, capsys):
    for _ in range(2):
        assert posenc("dashboard", experiment) == 0
    addresses = [line.split(": ")[1] for line in capsys.readouterr().out.splitlines()]
    assert addresses[:2] == addresses[2:]
    kinds = sorted(view["type"] for view in server.views.values())
    assert kinds == ["project-view", "runs"]
    spec = spec_of(experiment)
    for view in server.views.values():
        part = "report" if view["type"] == "runs" else "workspace"
        assert json.loads(view["spec"]) == spec[part]["spec"]
        assert view["displayName"] == "posenc alibi-laptop"


def test_without_a_server_one_message(experiment, monkeypatch, capsys):
    monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")
    assert posenc("dashboard", experiment) == 1
    (message,) = capsys.readouterr().err.splitlines()
    assert "--spec" in message
