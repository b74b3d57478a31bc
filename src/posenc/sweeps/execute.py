"""What a run's process does: train to the budget, evaluate what is missing, say how it ended."""

import logging
import time
import traceback
from dataclasses import asdict
from pathlib import Path

import torch
from omegaconf import DictConfig

from posenc.attention import resolve
from posenc.config.components import build, check
from posenc.config.errors import PosencError, RunError, one_line
from posenc.config.identity import identity, run_hash
from posenc.config.settings import check_settings, steps_of
from posenc.data.build_data import build_data
from posenc.data.dataset import Dataset
from posenc.evaluation.evaluate import evaluate
from posenc.evaluation.requests import (
    measurement_requests,
    missing_rows,
    requested_rows,
    training_fraction,
)
from posenc.model.device import device_of
from posenc.runs.environment import local_world_size, rank
from posenc.runs.files import DISK_FULL, is_disk_full
from posenc.runs.progress import NoOpProgress, Progress
from posenc.runs.run_directory import RunDirectory
from posenc.runs.status import ResolvedSettings
from posenc.sweeps.exits import FAILED, FINISHED, FULL, INTERRUPTED, LOST
from posenc.sweeps.facts import check_device_count
from posenc.sweeps.freeze import code_digest
from posenc.tracking.tracker import NullTracker, Tracker
from posenc.training.checkpoint import list_checkpoints
from posenc.training.distributed import (
    ProcessGroupLost,
    broadcast_from_rank0,
    process_group,
)
from posenc.training.fit import fit
from posenc.training.session import Session
from posenc.training.stop import StopRequest

log = logging.getLogger("posenc")


def execute(run: RunDirectory, threads: int, modules: list[str], stop: StopRequest) -> int:
    """See a run to its end; the exit code. What goes wrong ends in `status.json` in one line."""
    progress = Progress(run) if rank() == 0 else NoOpProgress(run)
    try:
        started = progress.status.started or time.time()
        progress.settle(state="running", error=None, started=started)
        with stop.handling_signals():
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
    run: RunDirectory, modules: list[str], threads: int, progress: Progress, stop: StopRequest
) -> bool:
    if stop.requested():
        return False
    config = run.config()
    config.modules = modules
    check_settings(config)
    _check_identity(config)
    resolved = _resolve(run, config, progress, threads)
    data = _data(config)
    tracker = _tracker(config)
    tracker.start(run, config)
    failed = True
    try:
        with process_group(torch.device(resolved.device)):
            session = Session(run, config, resolved, data, progress, stop, tracker)
            done = _train_and_evaluate(session)
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


def _resolve(
    run: RunDirectory, config: DictConfig, progress: Progress, threads: int
) -> ResolvedSettings:
    """Return the settings resolved when training began, now if it has not begun yet."""
    resolved = ResolvedSettings(
        code=code_digest(),
        threads=threads,
        device=device_of(config).type,
        kernel=resolve(config.kernel),
        micro_batch_tokens=config.micro_batch_tokens,
        parameters=config.frozen.parameters,
    )
    if progress.status.resolved and list_checkpoints(run.checkpoints):
        current, resolved = resolved, ResolvedSettings(**progress.status.resolved)
        if resolved.code != current.code:
            log.warning("started with code %s, resuming with %s", resolved.code, current.code)
    torch.set_num_threads(resolved.threads)
    check_device_count(torch.device(resolved.device), local_world_size())
    log.info("posenc %s, %s", config.frozen.posenc, resolved)
    total_tokens = steps_of(config).total * config.batch_tokens
    progress.settle(resolved=asdict(resolved), total_tokens=total_tokens)
    return resolved


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
    requested = requested_rows(config, data.fingerprint)
    requests = measurement_requests(config, data, requested)
    training = training_fraction(config, requests, session.resolved.parameters)
    if not fit(session, training):
        return False

    def on_progress(done: float, rate: float) -> bool:
        work = training + (1 - training) * done
        session.progress.update(phase="evaluation", work_done=work, tokens_per_second=rate)
        return not session.stop.requested()

    if keys := broadcast_from_rank0(lambda: missing_rows(requested, run.rows())):
        device = torch.device(session.resolved.device)
        evaluate(run, config, data, keys, device, on_progress)
    return not broadcast_from_rank0(lambda: missing_rows(requested, run.rows()))
