"""What a run's process does: train to the budget, evaluate what is missing, say how it ended."""

import logging
import time
import traceback
from pathlib import Path

import torch
from omegaconf import DictConfig

from posenc.attention import resolve
from posenc.config.components import build, check
from posenc.config.errors import PosencError, RunError, one_line
from posenc.config.identity import identity, run_hash
from posenc.config.settings import check_settings, steps_of
from posenc.data.build import build_data
from posenc.data.dataset import Dataset
from posenc.evaluation.evaluate import evaluate
from posenc.evaluation.request import requests
from posenc.evaluation.rows import missing, requested
from posenc.evaluation.work import training_fraction
from posenc.model.device import device_of
from posenc.runs.environment import local_world_size, rank, world_size
from posenc.runs.files import DISK_FULL, is_disk_full
from posenc.runs.progress import NoOpProgress, Progress
from posenc.runs.run_directory import RunDirectory
from posenc.sweeps.exits import FAILED, FINISHED, FULL, INTERRUPTED, LOST
from posenc.sweeps.facts import check_devices
from posenc.sweeps.freeze import code_digest
from posenc.tracking.tracker import NullTracker, Tracker
from posenc.training.checkpoint import found
from posenc.training.distributed import ProcessGroupLost, joined, settled
from posenc.training.fit import fit
from posenc.training.session import Session
from posenc.training.stop import Stop

log = logging.getLogger("posenc")


def execute(run: RunDirectory, threads: int, modules: list[str], stop: Stop) -> int:
    """See a run to its end; the exit code. What goes wrong ends in `status.json` in one line."""
    progress = Progress(run) if rank() == 0 else NoOpProgress(run)
    try:
        started = progress.status.started or time.time()
        progress.settle(state="running", error=None, started=started)
        with stop.listening():
            done = _run(run, modules, threads, progress, stop)
    except ProcessGroupLost as error:
        progress.settle(state="interrupted", error=str(error))
        return LOST
    except PosencError as error:
        log.error("%s", error)
        progress.settle(state="failed", error=one_line(error))
        return FAILED
    except Exception as error:
        log.error("%s", traceback.format_exc())
        if is_disk_full(error):
            return _without_space(progress)
        progress.settle(state="failed", error=one_line(_described(error)))
        return FAILED
    if not done:
        progress.settle(state="interrupted", error=stop.reason())
        return INTERRUPTED
    progress.settle(state="finished", error=None, work_done=1.0)
    return FINISHED


def _without_space(progress: Progress) -> int:
    """Nothing is wrong with the run: it goes on from its checkpoint once there is space."""
    try:
        progress.settle(state="interrupted", error=DISK_FULL)
    except OSError:
        return FULL
    return INTERRUPTED


def _described(error: Exception) -> str:
    """An error's kind, its text, and the line that it came from, of posenc or of a user's own."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if "site-packages" not in frame.filename]
    place = f" ({Path(own[-1].filename).name}, line {own[-1].lineno}, {own[-1].name})"
    return f"{type(error).__name__}: {error}{place}"


def _run(
    run: RunDirectory, modules: list[str], threads: int, progress: Progress, stop: Stop
) -> bool:
    if stop.asked():
        return False
    config = run.config()
    config.modules = modules
    check_settings(config)
    _check_identity(config)
    _resolve(run, config, progress, threads)
    data = _data(config)
    tracker = _tracker(config)
    tracker.start(run, config)
    failed = True
    try:
        with joined(device_of(config)):
            done = _train_and_evaluate(Session(run, config, data, progress, stop, tracker))
        failed = not done
    finally:
        tracker.finish(failed)
    return done


def _tracker(config: DictConfig) -> Tracker:
    """The run's own; the other processes of a group mirror nothing."""
    if rank() > 0:
        return NullTracker()
    return build(config.logger, name="logger", modules=list(config.modules))


def _check_identity(config: DictConfig) -> None:
    """RunError where the run is not what its name says: an encoding of the user's own, edited."""
    check(config.encoding, name="encoding", modules=list(config.modules), given=1)
    digest = run_hash(identity(config, config.frozen.fingerprint))
    if digest != config.frozen.hash:
        raise RunError(
            f"the run was planned as {config.frozen.hash} and is {digest} now: {config.encoding}"
            f" or what it is built from was edited since; type the command again to plan it anew"
        )


def _resolve(run: RunDirectory, config: DictConfig, progress: Progress, threads: int) -> None:
    """What may change the last bit is settled when training begins and kept from then on."""
    code = code_digest()
    before = progress.status.resolved if found(run.checkpoints) else {}
    if before and before.get("code") != code:
        log.warning("begun with the code %s, going on with %s", before.get("code"), code)
    resolved = before or {
        "code": code,
        "threads": threads,
        "device": device_of(config).type,
        "kernel": resolve(config.kernel),
        "micro_batch_tokens": config.micro_batch_tokens,
        "parameters": config.frozen.parameters,
    }
    torch.set_num_threads(resolved["threads"])
    config.kernel = resolved["kernel"]
    config.micro_batch_tokens = resolved["micro_batch_tokens"]
    config.devices = world_size()
    config.trainer.accelerator = {"cpu": "cpu", "cuda": "gpu"}[resolved["device"]]
    check_devices(config, local_world_size())
    log.info("posenc %s, %s", config.frozen.posenc, resolved)
    progress.settle(resolved=resolved, total_tokens=steps_of(config).total * config.batch_tokens)


def _data(config: DictConfig) -> Dataset:
    data = build_data(config, log.info)
    if data.fingerprint != config.frozen.fingerprint:
        raise RunError(
            f"the corpus or tokenizer is not what the run was planned on: fingerprint"
            f" {data.fingerprint}, planned {config.frozen.fingerprint}; plan it again"
        )
    return data


def _train_and_evaluate(session: Session) -> bool:
    run, config, data = session.run, session.config, session.data
    wanted = requested(config, data.fingerprint)
    share = training_fraction(config, requests(config, data, wanted))
    if not fit(session, share):
        return False

    def go_on(done: float, rate: float) -> bool:
        work = share + (1 - share) * done
        session.progress.update(phase="evaluation", work_done=work, tokens_per_second=rate)
        return not session.stop.asked()

    if keys := settled(lambda: missing(wanted, run.rows())):
        evaluate(run, config, data, keys, go_on)
    return not settled(lambda: missing(wanted, run.rows()))
