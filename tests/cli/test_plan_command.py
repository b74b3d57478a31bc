"""`posenc plan` from the command line."""

import json
from pathlib import Path

import pytest

from posenc.cli.main import main


@pytest.fixture(autouse=True)
def _empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def gpu_job(small_job: list[str]) -> list[str]:
    """The overrides of a run that trains in seconds on a GPU."""
    return [override for override in small_job if override != "trainer=cpu"]


def test_a_sweep_is_estimated_and_nothing_is_written(
    gpu_job: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    words = ["plan", *gpu_job, "encoding=alibi,nope", "seed=1,2", "machine=h100"]
    assert main([*words, "--json"]) == 0
    estimates = json.loads(capsys.readouterr().out)
    assert [(run["encoding"], run["seed"]) for run in estimates["runs"]] == [
        ("alibi", 1),
        ("alibi", 2),
        ("nope", 1),
        ("nope", 2),
    ]
    assert estimates["total"]["flops"] == sum(run["flops"] for run in estimates["runs"])
    assert estimates["runs"][0]["flops_per_second"] == 0.3 * 67e12
    assert not list(tmp_path.iterdir())

    assert main([*words, "machine.utilization=0.6", "precision=bf16"]) == 0
    table = " ".join(capsys.readouterr().out.split())
    assert "4 runs" in table and "% is for evaluation" in table
    assert "encoding L seed params memory FLOPs training eval" in table  # the table is not split
    non_embedding = estimates["runs"][0]["non_embedding_parameters"]
    assert f"non-embedding parameters: {non_embedding / 1e3:.3g}k" in table
    assert "evaluation is approximate until the data is prepared" in table
    assert "at 5.9e14 FLOP/s" in table and "vocabulary: 257 tokens" in table


def test_labels_name_the_settings_that_differ_between_runs(
    gpu_job: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["plan", *gpu_job, "encoding=rope", "encoding.spectrum.base=1e4,5e5", "machine=h100"]
    assert main([*words, "--json"]) == 0
    runs = json.loads(capsys.readouterr().out)["runs"]
    assert [run["label"] for run in runs] == ["rope base=10000", "rope base=500000"]
    assert main(words) == 0
    table = " ".join(capsys.readouterr().out.split())
    assert all(f"{run['label']} {run['train_length']} 1" in table for run in runs)


@pytest.mark.parametrize("encoding", ["smollm3", "command_a"])
def test_hybrids_are_timed_with_all_of_their_layers(
    small_job: list[str], capsys: pytest.CaptureFixture[str], encoding: str
) -> None:
    words = [*small_job, f"encoding={encoding}", "model.layers=4", "machine.seconds=0.01"]
    assert main(["plan", *words]) == 0, capsys.readouterr().err


@pytest.mark.slow
def test_the_launcher_sets_the_number_of_concurrent_runs_on_this_machine(
    small_job: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    for jobs in (1, 3):
        words = [*small_job, f"hydra.launcher.jobs={jobs}", "seed=1,2,3", "machine.seconds=0.01"]
        assert main(["plan", *words]) == 0
        assert f"concurrent runs: {jobs}" in " ".join(capsys.readouterr().out.split())


def test_runs_on_this_machine_share_its_cores(
    small_job: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("posenc.sweeps.pool.cores", lambda: 4)
    monkeypatch.setattr("posenc.runs.hardware.gpus", list)
    for devices, seeds, expected in ((1, "1", 1), (1, "1,2,3,4,5", 4), (2, "1,2,3,4,5", 2)):
        words = [*small_job, f"devices={devices}", f"seed={seeds}", "machine.seconds=0.01"]
        assert main(["plan", *words]) == 0
        output = " ".join(capsys.readouterr().out.split())
        assert f"concurrent runs: {expected}, devices per run: {devices}" in output


def test_a_kernel_is_checked_against_the_device_of_the_machine(
    gpu_job: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    words = [*gpu_job, "model.width=32", "model.heads=2", "encoding=alibi", "kernel=flex"]
    assert main(["plan", *words, "machine=h100", "--json"]) == 0
    assert main(["plan", *words, "trainer=cpu"]) == 2
    assert "flex" in capsys.readouterr().err


def test_a_task_is_estimated_without_building_its_data(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["data=task_copy", "data.alphabet_size=5", "evaluation.factors=[1]", "tokens=1e5"]
    assert main(["plan", *words, "machine=h100", "--json"]) == 0
    run = json.loads(capsys.readouterr().out)["runs"][0]
    assert run["vocab_size"] == 7 and run["includes_evaluation"]


def test_the_choice_of_compile_is_shown_with_its_reason(
    small_job: list[str], gpu_job: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    job = [*small_job, "compile=auto"]
    any_device = [*gpu_job, "compile=auto"]
    long_on_h100 = ["tokens=192000", "machine=h100"]
    assert main(["plan", *job, "machine.seconds=0.01"]) == 0
    assert "torch.compile: no (saves little in float32 on a CPU)" in capsys.readouterr().out
    assert main(["plan", *any_device, *long_on_h100]) == 0
    assert "torch.compile: yes (float32 on a GPU)" in capsys.readouterr().out
    assert main(["plan", *gpu_job, "machine=h100", "--json"]) == 0
    (run,) = json.loads(capsys.readouterr().out)["runs"]
    assert (run["compile"], run["compile_reason"]) == (False, "compile=false")
    assert main(["plan", *any_device, "machine=h100", "train_length=24,48"]) == 0
    assert "torch.compile: no (fewer than 1000 steps)" in capsys.readouterr().out
    assert main(["plan", *any_device, *long_on_h100, "batch_tokens=192,384"]) == 0
    choices = " ".join(capsys.readouterr().out.split())
    assert "yes (float32 on a GPU) for 1 run, no (fewer than 1000 steps) for 1 run" in choices


def test_runs_that_exceed_memory_are_reported(
    gpu_job: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", *gpu_job, "machine=h100", "machine.memory=1e5"]) == 0
    output = " ".join(capsys.readouterr().out.split())
    assert "peak memory exceeds the device's 100kB for 1 run" in output


def test_the_sweep_of_a_paper_is_estimated_without_its_data(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ["experiment=alibi_extrapolation", "size=paper", "train_length=512", "encoding=alibi"]
    assert main(["plan", *words, "devices=8", "machine=h100", "--json"]) == 0
    (run,) = json.loads(capsys.readouterr().out)["runs"]
    assert run["vocab_size"] == 267735
    assert run["parameters"] == 246_932_928
    assert 10 * 3600 < run["seconds"] * 8 < 100 * 3600


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["experiment=quickstart", "size=paper"], "size=paper"),
        (["size=gpu_hour"], "size=gpu_hour"),
        (["experiment=rope_base", "size=big"], "size=big: unknown option"),
        (["machine=abacus"], "machine=abacus: unknown option"),
        (["machine=h100", "machine.utilization=2"], "utilization=2"),
        (["machine=h100", "model.heads=5"], "heads=5 does not divide width=128"),
        (["machine=h100", "--csv"], "unknown flag --csv"),
        (["machine=h100", "trainer=cpu"], "trainer=cpu trains on a CPU"),
        (["machine=h100", "encoding=alibi", "kernel=key_bias"], "(device: cuda)"),
    ],
)
def test_a_mistake_gets_one_message(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", *words]) == 2
    error = capsys.readouterr().err
    assert error.count("posenc plan: ") == 1
    assert message in error and "Traceback" not in error
