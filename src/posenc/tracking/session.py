"""Opening and closing a W&B run in a process that goes on without it."""

import atexit
import logging
import os
import shutil
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from posenc.config.errors import RunError, named, one_line
from posenc.tracking.points import LENGTH, POSITION

if TYPE_CHECKING:
    from wandb import Run

log = logging.getLogger(__name__)

START_SECONDS = 15  # how long a server may take to accept a run
FINISH_SECONDS = 30  # how long it may take to accept the last rows
UPLOAD_SECONDS = 600  # how long `posenc sync`, which a person can stop, waits for that
FLUSH_SECONDS = 1  # what a killed process loses of an offline run; wandb's default is 15
OWN_AXES = {
    "train/*": "tokens",
    "validation/*": "tokens",
    "extrapolation/*": LENGTH,
    "loss_by_position/*": POSITION,
}


def open_run(mode: str, folder: Path, **identity: Any) -> "Run":
    """A W&B run that keeps its files in `<folder>/wandb/`; `identity` goes to `wandb.init`.

    Online without a key, or with a server that fails, refuses or hangs, it warns and goes on
    offline. Nothing prompts. Importing wandb takes a third of a second, so it waits until here.
    """
    with host_untouched():
        run = _online(folder, identity) if mode == "online" else None
        return run or _init("offline", folder, identity)


def open_online(**identity: Any) -> "Run":
    """A W&B run on its server, whose local files go with this process; RunError without one."""
    folder = Path(tempfile.mkdtemp(prefix="posenc-sync-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    with host_untouched():
        try:
            return _init("online", folder, identity, UPLOAD_SECONDS)
        except Exception as error:
            reason = one_line(error)
        _abandon()
    raise RunError(f"W&B cannot be used online: {reason}")


@contextmanager
def uploading(**identity: Any) -> Generator["Run"]:
    """A run that is open on its server; whatever fails there is a RunError."""
    run = open_online(**identity)
    try:
        yield run
    except (Exception, SystemExit) as error:
        abandon(run)
        raise RunError(f"W&B failed: {named(error)}") from None


def close_run(run: "Run", failed: bool) -> None:
    """Mark the run finished or failed, write or send what is left, and end W&B's process."""
    with host_untouched():
        run.finish(exit_code=int(failed))
        _end_service()


def abandon(run: "Run | None") -> None:
    """End what is left of a run that has failed, and W&B's process, whatever they say."""
    with host_untouched():
        if run is not None:
            with suppress(Exception, SystemExit):
                run.finish(exit_code=1)  # or its threads would look for the process
        _abandon()


@contextmanager
def host_untouched() -> Generator[None]:
    """Undo what wandb does to its host: `sys.exit`, `sys.excepthook` and the environment.

    It does not join a service that a parent process named in the environment either, and reports
    no errors to its makers unless WANDB_ERROR_REPORTING asks for it: offline means offline.
    """
    environment, leave, hook = dict(os.environ), sys.exit, sys.excepthook
    os.environ.pop("WANDB_SERVICE", None)
    os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
    try:
        yield
    finally:
        for name in set(os.environ) - set(environment):
            del os.environ[name]
        os.environ.update(environment)
        sys.exit, sys.excepthook = leave, hook


def _online(folder: Path, identity: dict[str, Any]) -> "Run | None":
    before = _online_folders(folder, identity)
    try:
        return _init("online", folder, identity)
    except Exception as error:
        reason = one_line(error)
    _abandon()
    for unused in _online_folders(folder, identity) - before:
        shutil.rmtree(unused)
    log.warning(
        "W&B cannot be used online (%s); going on offline, `posenc sync %s` uploads the run later",
        reason,
        folder.name,
    )
    return None


def _init(
    mode: str, folder: Path, identity: dict[str, Any], finish_seconds: float | None = None
) -> "Run":
    import wandb

    settings = wandb.Settings(
        mode=mode,  # type: ignore[arg-type]
        root_dir=str(folder),
        silent=True,
        quiet=True,
        console="off",
        disable_git=True,
        disable_code=True,
        save_code=False,
        force=False,
        relogin=False,
        init_timeout=START_SECONDS,
        finish_timeout=finish_seconds or FINISH_SECONDS,
        finish_timeout_raises=True,
        x_transaction_log_flush_interval=FLUSH_SECONDS,
    )
    if os.environ.get("WANDB_RUN_ID") != identity["id"]:  # else the agent of a sweep gave it
        os.environ.pop("WANDB_SWEEP_ID", None)
    wandb.setup(settings)
    if mode == "online" and not wandb.login(prompt=False, verify=False):
        raise wandb.Error("no API key; `wandb login` or WANDB_API_KEY gives it one")
    run = wandb.init(settings=settings, resume="allow", reinit="create_new", **identity)
    for axis in ("step", "tokens", LENGTH, POSITION):
        run.define_metric(axis, hidden=True)
    for metrics, axis in OWN_AXES.items():
        run.define_metric(metrics, step_metric=axis)
    return run


def _abandon() -> None:
    with suppress(Exception, SystemExit):
        _end_service()


def _end_service() -> None:
    import wandb

    wandb.teardown()


def _online_folders(folder: Path, identity: dict[str, Any]) -> set[Path]:
    return set(folder.glob(f"wandb/run-*-{identity['id']}*"))
