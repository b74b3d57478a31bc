"""`posenc bench` end to end, and the memory that it measures."""

import csv
import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from posenc.benchmark.variants import Variant
from posenc.benchmark.worker import ask
from posenc.cli import main

SMALL_MODEL = ["model.width=32", "model.layers=2", "model.heads=4", "model.feed_forward=64"]


def test_a_benchmark_is_printed_and_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["encoding=nope,alibi", "passes=[forward]", "rounds=2", "threads=1", "name=mine"]
    assert main(["bench", *SMALL_MODEL, *words, "train_length=256", "batch_tokens=256"]) == 0
    printed = capsys.readouterr().out
    assert "auto: toeplitz" in printed and printed.endswith("outputs/mine/bench/bench.md\n")
    folder = tmp_path / "outputs" / "mine" / "bench"
    made = {file.name for file in folder.iterdir()}
    assert made == {f"bench.{kind}" for kind in ("json", "csv", "md", "png", "svg")}
    found = json.loads((folder / "bench.json").read_text())
    assert found["command"].startswith("posenc bench model.width=32")
    nope, alibi = found["rows"]
    assert (alibi["encoding"], alibi["ratio_to"], alibi["rounds"]) == ("alibi", "nope", 2)
    pairs = zip(alibi["seconds"], nope["seconds"], strict=True)
    assert alibi["ratios"] == [a / n for a, n in pairs]
    assert alibi["encoding_config"]["_target_"] == "posenc.encodings.alibi.Alibi"
    assert min(nope["peak_memory_mb"], alibi["peak_memory_mb"]) > 0
    assert 0 < nope["utilisation"] < 1
    _, row = csv.DictReader((folder / "bench.csv").read_text().splitlines())
    assert float(row["ratio"]) == alibi["ratio"]


@pytest.mark.slow
def test_interrupted_it_leaves_nothing(tmp_path: Path) -> None:
    words = ["encoding=nope", "passes=[forward]", "rounds=1000000", "threads=1"]
    process = subprocess.Popen(
        [sys.executable, "-m", "posenc", "bench", *SMALL_MODEL, *words],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(40)
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=30)
    finally:
        process.kill()
    assert process.returncode == 130 and said == (b"", b"")
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.parametrize("encoding", ["alibi", "t5", "fire", "cope", "fox"])
def test_an_evaluation_with_a_bias_takes_at_most_twice_the_memory_of_one_without(
    variants: Callable[..., list[Variant]], encoding: str
) -> None:
    asked = [
        *("model.width=256", "model.layers=4", "model.heads=8", "model.feed_forward=1024"),
        *("vocab_size=4096", "batch_tokens=8192", "train_length=8192", "passes=[forward]"),
    ]

    def peak(name: str) -> float:
        (variant,) = variants(*asked, f"encoding={name}")
        request = {"config": OmegaConf.to_container(variant.config), "pass": "forward"}
        (answer,) = ask("posenc.benchmark.memory", request, threads=2)
        return answer["peak_memory_mb"]

    none = peak("nope")
    assert none > 50
    assert peak(encoding) < 2 * none
