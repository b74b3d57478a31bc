"""What a run's process does: train to the budget, evaluate what is missing, say how it ended."""

import logging
import time
import traceback

import torch
from omegaconf import DictConfig

from posenc.config.components import build
from posenc.config.errors import PosencError, RunError
from posenc.config.settings import check_settings, steps_of
from posenc.data.build import build_data
from posenc.data.dataset import Dataset
from posenc.evaluation.evaluate import evaluate
from posenc.evaluation.request import requests
from posenc.evaluation.rows import missing, requested
from posenc.evaluation.work import training_share
from posenc.model.device import device_of
from posenc.model.kernels import resolve
from posenc.record.environment import local_world_size, rank, world_size
from posenc.record.progress import Progress, Unwritten
from posenc.record.rundir import RunDirectory
from posenc.sweep.facts import check_devices
from posenc.sweep.process import FAILED, FINISHED, INTERRUPTED, LOST
from posenc.tracking.silent import Silent
from posenc.tracking.tracker import Tracker
from posenc.training.fit import fit
from posenc.training.group import GroupLost, joined, settled
from posenc.training.session import Session
from posenc.training.stop import Stop

log = logging.getLogger("posenc")


def execute(run: RunDirectory, threads: int, modules: list[str], stop: Stop) -> int:
    """See a run to its end; the exit code. What goes wrong ends in `status.json` in one line."""
    progress = Progress(run) if rank() == 0 else Unwritten(run)
    started = progress.status.started or time.time()
    progress.settle(state="running", error=None, started=started)
    try:
        with stop.listening():
            done = _run(run, modules, threads, progress, stop)
    except GroupLost as error:
        progress.settle(state="interrupted", error=str(error))
        return LOST
    except PosencError as error:
        log.error("%s", error)
        progress.settle(state="failed", error=_one_line(str(error)))
        return FAILED
    except Exception as error:
        log.error("%s", traceback.format_exc())
        progress.settle(state="failed", error=_one_line(f"{type(error).__name__}: {error}"))
        return FAILED
    if not done:
        progress.settle(state="interrupted", error=stop.reason())
        return INTERRUPTED
    progress.settle(state="finished", error=None, work_done=1.0)
    return FINISHED


def _run(
    run: RunDirectory, modules: list[str], threads: int, progress: Progress, stop: Stop
) -> bool:
    config = run.config()
    config.modules = modules
    check_settings(config)
    _resolve(config, progress, threads)
    data = _data(config)
    tracker = _tracker(config)
    tracker.start(run, config)
    failed = True
    try:
        with joined(device_of(config)):
            done = _train_and_evaluate(Session(run, config, data, progress, stop, tracker), tracker)
        failed = False
    finally:
        tracker.finish(failed)
    return done


def _tracker(config: DictConfig) -> Tracker:
    """The run's own; the other processes of a group mirror nothing."""
    if rank() > 0:
        return Silent()
    return build(config.logger, name="logger", modules=list(config.modules))


def _resolve(config: DictConfig, progress: Progress, threads: int) -> None:
    """What may change the last bit is settled at the first start and kept from then on."""
    resolved = progress.status.resolved or {
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


def _train_and_evaluate(session: Session, tracker: Tracker) -> bool:
    run, config, data = session.run, session.config, session.data
    wanted = requested(config, data.fingerprint)
    share = training_share(config, requests(config, data, wanted))
    if not fit(session, share):
        return False

    def go_on(done: float, rate: float) -> bool:
        work = share + (1 - share) * done
        session.progress.update(phase="evaluation", work_done=work, tokens_per_second=rate)
        return not session.stop.asked()

    if keys := settled(lambda: missing(wanted, run.rows())):
        tracker.evaluation(evaluate(run, config, data, keys, go_on))
    return not settled(lambda: missing(wanted, run.rows()))


def _one_line(text: str) -> str:
    return " ".join(text.split())
