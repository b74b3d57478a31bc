"""scripts/gpu.sh run as a smoke test on a CPU, and the tables of its results."""

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
DEVICE = "NVIDIA H100 80GB HBM3"


@pytest.fixture
def gpu_results(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(ROOT / "scripts" / "benchmarks")
    return importlib.import_module("gpu_results")


def test_mfu_is_relative_to_the_data_sheet_and_utilization_to_a_matrix_product(
    gpu_results: ModuleType, tmp_path: Path
) -> None:
    file = tmp_path / "peers_tiny.json"
    rounds = [{"posenc learned": 2.0, "nanoGPT": 1.0, "product": 1.0}] * 3
    flops = {"posenc learned": 989 * 10**11, "nanoGPT": 989 * 10**11, "product": 4 * 989 * 10**11}
    setup = {"setup": f"tiny, {DEVICE}", "compared_with": {"nanoGPT": "posenc learned"}}
    file.write_text(json.dumps({**setup, "flops": flops, "rounds": rounds}))
    table = gpu_results.markdown(tmp_path)
    assert "| posenc learned | 2000.0 | 12.5% | 5.0% | - |" in table
    assert "| nanoGPT | 1000.0 | 25.0% | 10.0% | posenc learned: 2.000 |" in table


def test_a_cpu_has_no_mfu(gpu_results: ModuleType) -> None:
    assert gpu_results.peak_flops("AMD EPYC") is None


def test_the_tables_replace_the_text_between_two_markers_in_the_docs(
    gpu_results: ModuleType, tmp_path: Path
) -> None:
    docs, folder = tmp_path / "docs", tmp_path / "gpu"
    report = folder / gpu_results.EXPERIMENT / "report"
    report.mkdir(parents=True)
    (report / "index.html").write_text("a report")
    docs.mkdir()
    page = docs / "benchmarks.md"
    page.write_text((ROOT / "docs" / "benchmarks.md").read_text())
    for tables in ("first", "second"):
        gpu_results.write_docs(folder, docs, tables)
    text = page.read_text()
    assert "second" in text and "first\n" not in text and "No GPU has been measured" not in text
    assert text.startswith("# Benchmarks") and text.endswith(f"{gpu_results.END}\n")
    assert (docs / "results" / gpu_results.EXPERIMENT / "index.html").read_text() == "a report"
    page.write_text("# Benchmarks\n")
    with pytest.raises(SystemExit, match=r"benchmarks\.md"):
        gpu_results.write_docs(folder, docs, "third")


@pytest.mark.slow
def test_the_smoke_test_runs_every_step_once(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHON": sys.executable, "OUTPUTS": str(tmp_path)}

    def smoke_test() -> "subprocess.CompletedProcess[str]":
        command = ["bash", "scripts/gpu.sh", "--smoke-test"]
        options: dict[str, Any] = {"cwd": ROOT, "env": environment, "text": True}
        return subprocess.run(command, capture_output=True, **options)

    first = smoke_test()
    assert first.returncode == 0, first.stdout + first.stderr
    steps = {line.removeprefix("== ") for line in first.stdout.splitlines() if "== " in line}
    assert {file.name for file in (tmp_path / "done").iterdir()} == steps
    results = (tmp_path / "results.md").read_text()
    assert "nanoGPT" in results and "toeplitz" in results and "blocks" in results
    assert (tmp_path / "alibi_extrapolation-gpu_hour" / "report" / "index.html").is_file()
    assert smoke_test().stdout == ""


def test_an_unknown_option_is_refused() -> None:
    command = ["bash", str(ROOT / "scripts" / "gpu.sh"), "--smoke"]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 2 and "--smoke-test" in result.stderr
