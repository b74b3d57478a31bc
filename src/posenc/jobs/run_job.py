"""Run one job: train the model, compute missing evaluation rows, and record the outcome."""

import logging
import time
import traceback
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path

import torch
from omegaconf import DictConfig

from posenc.attention.choice import describe_choices, layer_choices
from posenc.config.components import check
from posenc.config.errors import (
    ConfigError,
    PosencError,
    RunError,
    abbreviate,
    describe_error,
    describe_path_error,
    is_path_error,
    one_line,
)
from posenc.config.identity import check_identity
from posenc.config.settings import check_settings
from posenc.config.steps import training_steps
from posenc.data.build_data import build_data
from posenc.data.tokenized import TokenizedData
from posenc.encodings.base import Encoding
from posenc.evaluation.evaluate import evaluate
from posenc.evaluation.ngram_baseline import save_ngram_rows
from posenc.evaluation.requests import (
    measurement_requests,
    missing_row_keys,
    requested_row_keys,
    training_fraction,
)
from posenc.jobs.exit_codes import DISK_FULL, FAILED, FINISHED, INTERRUPTED, LOST, READ_ONLY
from posenc.jobs.validate import validate_device_count
from posenc.model.build import build_encoding, build_meta_model
from posenc.model.device import (
    attention_dtype,
    deterministic_numerics,
    processor_name,
    select_device,
)
from posenc.model.transformer import derive_seed, seed_cpu
from posenc.runs.code_snapshot import code_digest
from posenc.runs.environment import local_world_size, rank
from posenc.runs.files import RowsDigest, disk_message, is_disk_full
from posenc.runs.run_directory import RunDirectory
from posenc.runs.status import ResolvedSettings, StatusWriter
from posenc.tracking.build_tracker import build_tracker
from posenc.tracking.tracker import NullTracker
from posenc.training.checkpoint import list_checkpoints, resumable_checkpoint
from posenc.training.compilation import choose_compile
from posenc.training.distributed import ProcessGroupLostError, broadcast_from_rank0, process_group
from posenc.training.fit import fit
from posenc.training.session import Session
from posenc.training.stop import Stopped, StopRequest

log = logging.getLogger("posenc")
RESELECTED = ("kernel", "compile", "compile_reason")
"""The resolved settings that a resumed run chooses again."""


def run_job(run: RunDirectory, threads: int, modules: list[str], stop: StopRequest) -> int:
    """Train and evaluate a run, write the outcome to `status.json`, and return an exit code."""
    progress = StatusWriter(run.status_file, is_writer=rank() == 0)
    try:
        started = progress.status.started or time.time()
        progress.write(state="running", error=None, started=started)
        with stop.handling_signals(), deterministic_numerics():
            finished = _run(run, modules, threads, progress, stop)
        digests = _log_digests(run) if finished else {}
    except ProcessGroupLostError as error:
        progress.write(state="interrupted", error=str(error))
        return LOST
    except PosencError as error:
        log.error("%s", error)
        progress.write(state="failed", error=abbreviate(one_line(error)))
        return FAILED
    except (Exception, SystemExit) as error:  # user code may call sys.exit
        if message := disk_message(error):  # the run can resume once the disk is writable again
            log.error("%s\n%s", message, traceback.format_exc())
            with suppress(OSError):
                progress.write(state="interrupted", error=message)
                return INTERRUPTED
            return DISK_FULL if is_disk_full(error) else READ_ONLY
        if is_path_error(error):
            log.error("%s", describe_path_error(error))
            with suppress(OSError):  # the launcher reports the log's last line instead
                progress.write(state="failed", error=one_line(describe_path_error(error)))
            return FAILED
        log.error("%s", traceback.format_exc())
        progress.write(state="failed", error=f"{describe_error(error)} ({_origin(error)})")
        return FAILED
    if not finished:
        progress.write(state="interrupted", error=stop.reason())
        return INTERRUPTED
    progress.write(state="finished", error=None, work_done=1.0, **digests)
    return FINISHED


def _log_digests(run: RunDirectory) -> dict[str, str]:
    """Return the digests of a finished run's logs. Raises RunError if a log is corrupt."""
    return {
        "metrics_digest": RowsDigest(run.metrics()).short_hexdigest(),
        "timing_digest": RowsDigest(run.timing()).short_hexdigest(),
    }


def _origin(error: BaseException) -> str:
    """Return the innermost line of a traceback, if possible one outside site-packages."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if "site-packages" not in frame.filename]
    frame = (own or frames)[-1]
    return f"{Path(frame.filename).name}, line {frame.lineno}, {frame.name}"


def _run(
    run: RunDirectory, modules: list[str], threads: int, progress: StatusWriter, stop: StopRequest
) -> bool:
    """Train and evaluate a run. Returns False if it was stopped before it was finished."""
    if stop.requested():
        return False
    config = run.config()
    config.modules = modules
    check_settings(config)
    check(config.encoding, name="encoding", modules=modules)
    check_identity(config)
    # Modules that have just been imported may have changed the settings.
    with deterministic_numerics():
        return _run_checked(run, config, threads, progress, stop)


def _run_checked(
    run: RunDirectory, config: DictConfig, threads: int, progress: StatusWriter, stop: StopRequest
) -> bool:
    encoding = build_encoding(config)
    resolved = _resolve_settings(run, config, encoding, progress, threads)
    try:
        with stop.raising_on_signal():
            data = build_data(config, log.info)
    except Stopped:
        return False
    if data.fingerprint != config.planned.fingerprint:
        raise RunError(
            f"the corpus or tokenizer has changed since planning: the data's fingerprint was"
            f" {config.planned.fingerprint} and is now {data.fingerprint}; rerun the command to"
            f" plan a run with the changed data"
        )
    tracker = NullTracker()
    if rank() == 0:
        tracker = build_tracker(config)
    tracker.start(run, config)
    finished, error = False, None
    try:
        with process_group(torch.device(resolved.device)):
            session = Session(run, config, encoding, resolved, data, progress, stop, tracker.log)
            finished = _train_and_evaluate(session)
    except (Exception, SystemExit) as exception:
        error = describe_error(exception)
        raise
    finally:
        tracker.finish(not finished, error)
    return finished


def _resolve_settings(
    run: RunDirectory, config: DictConfig, encoding: Encoding, progress: StatusWriter, threads: int
) -> ResolvedSettings:
    """Return the resolved settings of a run that is starting or resuming, and write its status.

    A resumed run reselects its kernel and whether to compile, but keeps all other settings. A run
    that was started on a CPU stays on the CPU; one that was trained on a GPU may be evaluated on a
    machine without one.
    """
    saved = progress.status.resolved if list_checkpoints(run.checkpoints) else {}
    device = torch.device("cpu") if saved.get("device") == "cpu" else select_device(config)
    dtype = attention_dtype(config.precision)
    num_steps = training_steps(config).total
    compiled = choose_compile(config.compile, device, config.precision, num_steps)
    resolved = ResolvedSettings(
        code=code_digest(),
        threads=threads,
        device=device.type,
        processor=processor_name(device),
        kernel=describe_choices(layer_choices(config.kernel, encoding, device, dtype)),
        compile=compiled.enabled,
        compile_reason=compiled.reason,
        micro_batch_tokens=config.micro_batch_tokens,
        parameters=config.planned.parameters,
    )
    if saved:
        current = resolved
        resolved = replace(current, **{key: saved[key] for key in asdict(current) if key in saved})
        for name in ("code", "processor", "kernel", "compile"):
            before, now = getattr(resolved, name), getattr(current, name)
            if before != now:
                log.warning("started with %s %s, resuming with %s", name, before, now)
        resolved = replace(resolved, **{name: getattr(current, name) for name in RESELECTED})
    used = resolved
    if resolved.device == "cuda" and not torch.cuda.is_available():
        _require_trained(run, num_steps)
        used = replace(resolved, device=device.type)
        resolved = replace(resolved, **{name: saved[name] for name in RESELECTED if name in saved})
        log.warning("trained on a GPU, evaluating on a CPU")
    torch.set_num_threads(used.threads)
    validate_device_count(torch.device(used.device), local_world_size())
    log.info("posenc %s, %s", config.planned.posenc_version, used)
    total_tokens = num_steps * config.batch_tokens
    progress.write(resolved=asdict(resolved), total_tokens=total_tokens)
    return used


def _require_trained(run: RunDirectory, num_steps: int) -> None:
    """Raise ConfigError if a run that was started on a GPU has not been trained to the end."""
    checkpoint = resumable_checkpoint(run)
    if checkpoint is None or checkpoint.step < run.trained_steps(num_steps):
        raise ConfigError(
            f"{run.name} was started on a GPU, but this machine has none; rerun the"
            f" command with retry=true on a machine with a GPU, or delete {run.path} to train it"
            f" here"
        )


def _train_and_evaluate(session: Session) -> bool:
    """Train, then compute missing rows. Returns False if a stop was requested before the end."""
    run, config, data = session.run, session.config, session.data
    requested = requested_row_keys(config, data.fingerprint)
    requests = measurement_requests(config, data, requested)
    model = build_meta_model(config, data.vocab_size, session.encoding)
    fit_fraction = training_fraction(config, model, requests)
    seed_cpu(derive_seed(config.seed, "fit"))  # for random numbers in a user's components
    if not fit(session, fit_fraction):
        return False

    def on_progress(done: float, rate: float) -> bool:
        work = fit_fraction + (1 - fit_fraction) * done
        session.progress.update(phase="evaluation", work_done=work, tokens_per_second=rate)
        return not session.stop.requested()

    if missing := broadcast_from_rank0(
        lambda: missing_row_keys(requested, run.rows(config.planned.hash))
    ):
        device = torch.device(session.resolved.device)
        evaluate(run, config, data, missing, device, on_progress)
    if broadcast_from_rank0(
        lambda: (
            session.stop.requested() or missing_row_keys(requested, run.rows(config.planned.hash))
        )
    ):
        return False
    if rank() == 0 and isinstance(data, TokenizedData):
        try:
            with session.stop.raising_on_signal():
                save_ngram_rows(run, config, data, run.trained_steps(training_steps(config).total))
        except Stopped:
            return False
    return True
