"""`posenc bench` end to end, and the peak memory that it measures."""

import csv
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import cache
from html import unescape
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from posenc.benchmark.bench_report import NOTE
from posenc.benchmark.measurements import MEASUREMENT_PROCESS
from posenc.benchmark.subprocess_calls import call_module
from posenc.benchmark.variants import Variant
from posenc.cli import main

SMALL_MODEL = ["model.width=32", "model.layers=2", "model.heads=4", "model.feed_forward=64"]


@pytest.mark.slow
def test_a_benchmark_prints_tables_and_writes_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    overrides = ["encoding=nope,alibi", "passes=[forward]", "rounds=2", "threads=1", "name=mine"]
    assert main(["bench", *SMALL_MODEL, *overrides, "train_length=256", "batch_tokens=256"]) == 0
    printed = capsys.readouterr().out
    assert "auto: toeplitz" in printed and printed.endswith("outputs/mine/bench/index.html\n")
    folder = tmp_path / "outputs" / "mine" / "bench"
    files = {file.name for file in folder.iterdir()}
    kinds = ("json", "csv", "md", "png", "svg")
    assert files == {"index.html", *(f"bench.{kind}" for kind in kinds)}
    page = " ".join(unescape((folder / "index.html").read_text()).split())
    assert NOTE in page and "alibi" in page and "posenc bench model.width=32" in page
    bench = json.loads((folder / "bench.json").read_text())
    assert bench["command"].startswith("posenc bench model.width=32")
    nope, alibi = bench["rows"]
    assert (alibi["encoding"], alibi["ratio_to"], alibi["rounds"]) == ("alibi", "nope", 2)
    pairs = zip(alibi["seconds"], nope["seconds"], strict=True)
    assert alibi["ratios"] == [a / n for a, n in pairs]
    assert alibi["encoding_config"]["_target_"] == "posenc.encodings.alibi.Alibi"
    assert min(nope["peak_memory_mb"], alibi["peak_memory_mb"]) > 0
    assert 0 < nope["utilization"] < 1
    _, row = csv.DictReader((folder / "bench.csv").read_text().splitlines())
    assert float(row["ratio"]) == alibi["ratio"]
    assert main(["bench", *SMALL_MODEL, *overrides, "train_length=256", "batch_tokens=256"]) == 0
    assert json.loads((folder.with_name("bench-1") / "bench.json").read_text()) == bench
    assert {file.name for file in folder.iterdir()} == files


@pytest.mark.slow
def test_the_attention_of_one_layer_can_be_timed_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    overrides = ["encoding=alibi", "passes=[attention_step]", "rounds=1", "threads=1", "name=mine"]
    assert main(["bench", *SMALL_MODEL, *overrides, "train_length=64", "batch_tokens=64"]) == 0
    (row,) = json.loads(Path("outputs/mine/bench/bench.json").read_text())["rows"]
    assert row["pass"] == "attention_step" and row["milliseconds"] > 0


@pytest.mark.slow
def test_an_interrupted_benchmark_prints_no_results_and_leaves_no_files(tmp_path: Path) -> None:
    overrides = ["encoding=nope", "passes=[forward]", "rounds=1000000", "threads=1"]
    process = subprocess.Popen(
        [sys.executable, "-m", "posenc", "bench", *SMALL_MODEL, *overrides],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        while not children.read_text():
            assert process.poll() is None
            time.sleep(0.05)
        time.sleep(3)
        process.send_signal(signal.SIGINT)
        stdout, stderr = process.communicate(timeout=30)
    finally:
        process.kill()
    assert process.returncode == 130 and stdout == b""
    assert len(stderr.splitlines()) == 1  # the number of variants and the minimum time
    assert not list(tmp_path.iterdir())


@pytest.fixture(scope="module")
def evaluation_peak_mb(variants: Callable[..., list[Variant]]) -> Callable[[str], float]:
    """Returns the peak memory in MB of a forward pass over 8,192 tokens in one layer.

    Without gradients, a layer's memory is freed before the next layer runs, so one is enough.
    The peaks of two processes may differ by 100 MB, so the value is the smaller of two.
    """
    overrides = [
        "model.width=256",
        "model.layers=1",
        "model.heads=8",
        "model.feed_forward=1024",
        "vocab_size=4096",
        "batch_tokens=8192",
        "train_length=8192",
        "passes=[forward]",
    ]

    @cache
    def peak(name: str) -> float:
        (variant,) = variants(*overrides, f"encoding={name}")
        request = {"config": OmegaConf.to_container(variant.config), "pass": "forward"}
        answers = (call_module(MEASUREMENT_PROCESS, request, threads=2) for _ in range(2))
        return min(answer["peak_memory_mb"] for (answer,) in answers)

    return peak


@pytest.mark.slow
@pytest.mark.parametrize("encoding", ["alibi", "t5", "fire", "cope", "fox"])
def test_a_bias_at_most_doubles_the_memory_of_an_evaluation(
    evaluation_peak_mb: Callable[[str], float], encoding: str
) -> None:
    without_bias = evaluation_peak_mb("nope")
    assert without_bias > 50
    assert evaluation_peak_mb(encoding) < 2 * without_bias
