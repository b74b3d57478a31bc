"""A run on two devices has the losses, evaluation and data order of the run on one device."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from posenc.config.errors import ConfigError
from posenc.config.steps import TrainingSteps
from posenc.jobs.exit_codes import FINISHED, INTERRUPTED, LOST
from posenc.jobs.job import main
from posenc.runs.code_snapshot import PACKAGE
from posenc.runs.loss_arrays import read_arrays
from posenc.runs.run_directory import RunDirectory
from posenc.sweeps.plan import plan
from posenc.training.batches import MicroBatches

SmallRun = Callable[..., RunDirectory]
JOB = [sys.executable, "-m", "posenc.jobs.job"]


def start(run: RunDirectory, *torchrun: str, **environment: str) -> subprocess.Popen[bytes]:
    """Start the run's job, with `torchrun` as its launcher if given."""
    command = [*torchrun, *JOB[1:]] if torchrun else JOB
    env = os.environ | environment
    with run.log_file.open("ab") as log:
        return subprocess.Popen([*command, str(run.path)], stdout=log, stderr=log, env=env)


def finish(run: RunDirectory) -> RunDirectory:
    """Run or resume a run: in this process for one device, in new processes for several.

    Like a launcher, restart a run one of whose ranks was aborted: on CPUs, PyTorch's communication
    threads occasionally abort their process (docs/scaling.md).
    """
    if run.config().devices == 1:
        assert main([str(run.path)]) == FINISHED, run.status().error
        return run
    code = start(run).wait()
    if code == LOST and "SIGABRT" in (run.status().error or ""):
        code = start(run).wait()
    assert code == FINISHED, run.log_file.read_text()
    return run


def rank_process_id(parent: int, rank: int) -> int:
    """Return the process id of a rank that `parent` started."""
    for child in Path(f"/proc/{parent}/task/{parent}/children").read_text().split():
        if f"\0RANK={rank}\0" in Path(f"/proc/{child}/environ").read_text():
            return int(child)
    raise LookupError(rank)


def wait_for_step(run: RunDirectory, step: int, process: subprocess.Popen[bytes]) -> None:
    while len(run.metrics()) < step:
        assert process.poll() is None, run.log_file.read_text()
        time.sleep(0.005)


def assert_same_results(run: RunDirectory, expected: RunDirectory) -> None:
    assert [row["step"] for row in run.metrics()] == list(range(1, 41))
    for row, other in zip(run.metrics(), expected.metrics(), strict=True):
        assert row.pop("gradient_norm") == pytest.approx(other.pop("gradient_norm"), rel=1e-3)
        assert row == pytest.approx(other, abs=1e-5)
    for row, other in zip(run.rows(), expected.rows(), strict=True):
        assert row["count"] == other["count"]
        assert row["tokens_hash"] == other["tokens_hash"]
        assert row["loss"] == pytest.approx(other["loss"], abs=1e-5)
        assert row["perplexity"] == pytest.approx(other["perplexity"], rel=1e-5)
    blocks, expected_blocks = read_arrays(run.blocks_file), read_arrays(expected.blocks_file)
    assert blocks.keys() == expected_blocks.keys()
    for name, values in blocks.items():
        assert values.tolist() == pytest.approx(expected_blocks[name].tolist(), rel=1e-5)


class NumberedSequences:
    """Batches of one-token sequences; the token is the number of the sequence."""

    def batch(self, step: int, size: int) -> tuple[torch.Tensor, torch.Tensor]:
        numbers = torch.arange(step * size, (step + 1) * size)[:, None]
        return numbers, numbers


@pytest.mark.parametrize("devices", [1, 2, 4])
def test_a_step_has_the_same_sequences_on_any_number_of_devices(devices: int) -> None:
    steps = TrainingSteps(total=3, sequences=8, micro_batch_size=2, devices=devices)
    sharded = [list(MicroBatches(NumberedSequences(), steps, 1, rank)) for rank in range(devices)]
    assert {len(batches) for batches in sharded} == {2 * steps.accumulation_steps}
    in_order = [micro for batches in zip(*sharded, strict=True) for micro in batches]
    assert torch.cat([inputs for inputs, *_ in in_order]).flatten().tolist() == list(range(8, 24))
    assert {scored for *_, scored in in_order} == {2.0}


def test_the_number_of_devices_does_not_change_the_name_of_a_run(small_run: SmallRun) -> None:
    one, two = small_run(), small_run("devices=2", "trainer.strategy=fsdp", "name=two")
    assert one.name == two.name


def test_the_number_of_devices_must_divide_a_step(small_run: SmallRun) -> None:
    with pytest.raises(ConfigError, match="micro_batch_tokens=48 does not divide the 72"):
        small_run("devices=2", "batch_tokens=144", "micro_batch_tokens=48")


@pytest.fixture(scope="module")
def port() -> Iterator[str]:
    with socket.socket() as bound:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(("127.0.0.1", 0))
        yield str(bound.getsockname()[1])


ADAMW = "optimizer=adamw"  # Muon amplifies the rounding differences between these runs
DROPOUT = (ADAMW, "model.dropout=0.2", "micro_batch_tokens=96")
DROPPED_ENCODING = ("encoding=drope", "encoding@encoding.inner=t5", "encoding.dropped_fraction=0.5")
ADAPTIVE_EMBEDDING = (
    "encoding=cable",
    "model=wikitext103_247m",
    "model.width=32",
    "model.layers=2",
    "model.heads=4",
    "model.feed_forward=64",
    "model.cutoffs=[40,250]",
)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("strategy", "overrides"), [("ddp", DROPPED_ENCODING), ("fsdp", ADAPTIVE_EMBEDDING)]
)
def test_two_devices_train_and_evaluate_like_one(
    small_run: SmallRun, strategy: str, overrides: tuple[str, ...]
) -> None:
    """Some weights are unused in some steps, and dropout is the same for the same sequences."""
    one = finish(small_run(*overrides, *DROPOUT, "name=one"))
    two = ("devices=2", f"trainer.strategy={strategy}", "logger=wandb", "name=two")
    run = finish(small_run(*overrides, *DROPOUT, *two))
    assert_same_results(run, one)
    assert len(list((run.path.parent / "wandb").glob("run-*"))) == 1


@pytest.mark.slow
def test_the_accuracy_on_two_devices_equals_that_on_one(task_job: list[str]) -> None:
    one, two = (
        finish(plan([[*task_job, ADAMW, *overrides]], [], "test", print)[0].run)
        for overrides in (("name=on-1",), ("devices=2", "name=on-2"))
    )
    assert_same_results(two, one)
    for row, other in zip(two.rows(), one.rows(), strict=True):
        assert (row["accuracy"], row["exact"]) == (other["accuracy"], other["exact"])


@pytest.mark.slow
def test_killed_ranks_and_changed_numbers_of_devices_change_no_results(
    small_run: SmallRun,
) -> None:
    """FSDP on two devices until rank 0 is killed, then one device until the run is stopped.

    Then DDP on two devices, until rank 1 is killed and again until the run is finished.
    """

    def planned(*overrides: str) -> RunDirectory:
        frequent = "checkpoint.every_seconds=0.01"
        return small_run(ADAMW, "encoding=t5", "name=moved", frequent, *overrides)

    uninterrupted = finish(small_run(ADAMW, "encoding=t5", "name=uninterrupted"))
    for step, overrides, rank in (
        (5, ("devices=2", "trainer.strategy=fsdp"), 0),
        (14, ("devices=1",), None),
        (23, ("devices=2",), 1),
    ):
        run = planned(*overrides)
        process = start(run)
        wait_for_step(run, step, process)
        if rank is None:
            process.terminate()
        else:
            os.kill(rank_process_id(process.pid, rank), signal.SIGKILL)
        expected = INTERRUPTED if rank is None else LOST
        assert process.wait() == expected, run.log_file.read_text()
        status = run.status()
        killed = f"rank {rank} of 2 was killed (SIGKILL)"
        assert status.state == "interrupted"
        assert status.error == ("stopped by a signal" if rank is None else killed)
        assert not run_process_ids(run)
    assert_same_results(finish(planned("devices=2")), uninterrupted)


@pytest.mark.slow
def test_a_run_on_one_device_can_be_resumed_with_fsdp(small_run: SmallRun) -> None:
    overrides = (*ADAPTIVE_EMBEDDING, *DROPOUT)
    uninterrupted = finish(small_run(*overrides, "name=uninterrupted"))
    run = small_run(*overrides, "name=resumed")
    process = start(run)
    wait_for_step(run, 9, process)
    process.terminate()
    assert process.wait() == INTERRUPTED, run.log_file.read_text()
    run = finish(small_run(*overrides, "name=resumed", "devices=2", "trainer.strategy=fsdp"))
    assert_same_results(run, uninterrupted)


@pytest.mark.slow
def test_a_rank_that_has_finished_cannot_fail_while_python_shuts_down(
    small_run: SmallRun, tmp_path: Path
) -> None:
    """PyTorch's communication threads may abort a process at that time."""
    abort = "import atexit, os\nif 'RANK' in os.environ:\n    atexit.register(os.abort)\n"
    (tmp_path / "sitecustomize.py").write_text(abort)
    run = small_run("devices=2")
    assert start(run, PYTHONPATH=f"{tmp_path}:{PACKAGE.parent}").wait() == FINISHED
    assert run.status().state == "finished"


def run_process_ids(run: RunDirectory) -> list[str]:
    """Return the ids of the processes that work on a run."""
    listing = subprocess.run(["pgrep", "-f", str(run.path)], capture_output=True, text=True)
    return listing.stdout.split()


@pytest.mark.parametrize(
    "device",
    [pytest.param("cpu", marks=pytest.mark.slow), pytest.param("gpu", marks=pytest.mark.gpu)],
)
def test_a_process_group_of_one_device_trains_like_no_process_group(
    small_run: SmallRun, port: str, device: str
) -> None:
    """torchrun with a single process: DDP over NCCL on a GPU, and over gloo on a CPU."""
    one, run = (small_run(ADAMW, f"trainer={device}", f"name={name}") for name in ("one", "ddp"))
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=1"]
    torchrun += ["--master-addr=127.0.0.1", f"--master-port={port}"]
    assert start(run, *torchrun).wait() == FINISHED, run.log_file.read_text()
    assert_same_results(run, finish(one))


@pytest.mark.slow
def test_two_nodes_of_torchrun_train_one_run(small_run: SmallRun, port: str) -> None:
    one, run = finish(small_run(ADAMW, "name=one")), small_run(ADAMW, "name=nodes")
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=1", "--nnodes=2"]
    torchrun += ["--master-addr=127.0.0.1", f"--master-port={port}"]
    nodes = [start(run, *torchrun, f"--node-rank={node}") for node in range(2)]
    assert [node.wait() for node in nodes] == [FINISHED, FINISHED], run.log_file.read_text()
    assert_same_results(run, one)
