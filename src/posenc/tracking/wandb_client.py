"""Opens and closes W&B runs so that wandb cannot stop or modify this process.

wandb can delay the process by no more than the timeouts below.
"""

import atexit
import configparser
import logging
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from posenc.config.errors import PosencError, RunError, describe_error, one_line
from posenc.config.paths import experiment_command
from posenc.runs.files import NotRegularFileError, read_text, reject_special_files
from posenc.tracking.wandb_history import LENGTH_AXIS, POSITION_AXIS, STEP_METRICS

if TYPE_CHECKING:
    from wandb import Run

log = logging.getLogger(__name__)

INIT_TIMEOUT = 15  # seconds for the server to accept a run
REQUEST_TIMEOUT = 10  # seconds for the server to answer a request that precedes logging a table
FINISH_TIMEOUT = 20  # seconds for the server to accept the last rows
UPLOAD_TIMEOUT = 600  # the same for `posenc sync`, which does not hold up training
ABANDON_TIMEOUT = 5  # seconds to close a run after W&B has failed

# Seconds between writes of an offline run to disk; a killed process loses the rows since the last
# write. wandb's default is 15. The setting is private; versions of wandb that do not know it keep
# their own interval.
PRIVATE_SETTINGS: dict[str, Any] = {"x_transaction_log_flush_interval": 1}


class WandbError(RunError):
    """W&B failed or cannot be reached; the files of the run are intact."""


def open_run(mode: str, folder: Path, **init_kwargs: Any) -> "Run":
    """Return a W&B run that keeps its files in `<folder>/wandb/`, without ever prompting.

    If there is no API key, if `check_folder_settings` fails, or if the server fails or does not
    respond in time, logs a warning and returns an offline run instead of an online one.
    `init_kwargs` are passed to `wandb.init`.
    """
    with restored_process_state():
        run = _online_run_or_none(folder, init_kwargs) if mode == "online" else None
        return run or _init("offline", folder, init_kwargs, FINISH_TIMEOUT)


@contextmanager
def init_run(offline_folder: Path | None = None, **init_kwargs: Any) -> Generator["Run"]:
    """Open a W&B run on the server or, if a folder is given, offline in `<offline_folder>/wandb/`.

    The local files of an online run are removed when this process exits. Raises WandbError if W&B
    fails.
    """
    mode, folder = "offline" if offline_folder else "online", offline_folder
    if folder is None:
        folder = Path(tempfile.mkdtemp(prefix="posenc-sync-"))
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
    with restored_process_state():
        try:
            run = _init(mode, folder, init_kwargs, UPLOAD_TIMEOUT)
        except Exception as error:
            _try_to_stop_service()
            raise WandbError(f"cannot open an {mode} W&B run: {one_line(error)}") from None
    try:
        yield run
    except PosencError:  # a corrupt file of the run, not W&B
        abandon_run(run)
        raise
    except (Exception, SystemExit) as error:
        abandon_run(run)
        raise WandbError(f"W&B failed: {describe_error(error)}") from None


@contextmanager
def time_limit(seconds: float) -> Generator[None]:
    """Kill wandb's service after `seconds`, so that calls waiting for it return.

    Then raises TimeoutError. wandb's own timeout does not cover a request that precedes the end of
    a run, such as an alert.
    """
    expired, service = threading.Event(), _service_process()

    def stop() -> None:
        expired.set()
        if service is not None:
            service.kill()
            service.wait()

    timer = threading.Timer(seconds, stop)
    timer.daemon = True
    timer.start()
    try:
        yield
    except (Exception, SystemExit) as error:
        if not expired.is_set():
            raise
        raise TimeoutError from error
    finally:
        timer.cancel()
    if expired.is_set():
        raise TimeoutError


def _service_process() -> "subprocess.Popen[bytes] | None":
    """Return the process of wandb's service, or None if it is not running.

    It is found through a private attribute; if a version of wandb lacks it, nothing is killed.
    """
    import wandb

    with suppress(AttributeError):
        return wandb.setup()._connection._proc._process  # type: ignore[union-attr]
    return None


def failure_reason(error: BaseException) -> str:
    """Return why wandb failed; wandb itself reports a timeout as an authentication error."""
    if isinstance(error, TimeoutError) or "did not respond in time" in str(error):
        return "the server is not responding"
    return describe_error(error)


def close_run(run: "Run", failed: bool) -> None:
    """Mark the run as finished or failed, flush its last rows, and shut down wandb's service."""
    with restored_process_state():
        import wandb

        run.finish(exit_code=int(failed))
        wandb.teardown()


def abandon_run(run: "Run | None") -> None:
    """Finish a failed run, if any, and shut down wandb's service, ignoring further errors."""
    with restored_process_state():
        if run is not None:
            with suppress(Exception, SystemExit), time_limit(ABANDON_TIMEOUT):
                run.finish(exit_code=1)  # otherwise its threads keep polling the service
        _try_to_stop_service()


@contextmanager
def restored_process_state() -> Generator[None]:
    """Undo wandb's changes to `sys.exit`, `sys.excepthook` and the environment.

    Also prevents wandb from attaching to the service of a parent process and, unless
    WANDB_ERROR_REPORTING is set, from sending error reports, so that offline runs stay offline.
    """
    environment, original_exit, excepthook = dict(os.environ), sys.exit, sys.excepthook
    os.environ.pop("WANDB_SERVICE", None)
    os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
    try:
        yield
    finally:
        for name in set(os.environ) - set(environment):
            del os.environ[name]
        os.environ.update(environment)
        sys.exit, sys.excepthook = original_exit, excepthook


def check_folder_settings(mode: str) -> None:
    """Raise WandbError if W&B settings in the current directory could send data elsewhere.

    A project, an entity and the user's own server are accepted; `wandb init` writes them to
    `wandb/settings`. But someone else may have written this file. Online, wandb would send the
    user's API key to the server that the file names. Offline, only private settings can make wandb
    contact a server, such as `x_stats_open_metrics_endpoints`.
    """
    import wandb

    config_dir = Path(os.environ.get("WANDB_CONFIG_DIR") or "~/.config/wandb").expanduser()
    default = wandb.Settings.model_fields["base_url"].default
    server = _read_settings(config_dir / "settings").get("base_url", default)
    harmless = {("base_url", os.environ.get("WANDB_BASE_URL") or server)}
    for file in (Path("wandb/settings"), Path(".wandb/settings")):
        settings = _read_settings(file).items()
        other = {key for key, _ in settings - harmless} - {"entity", "project"}
        if mode == "offline":
            other = {key for key in other if key.startswith("x_")}
        if other:
            raise WandbError(
                f"{file} in the current directory sets {', '.join(sorted(other))}, which can change"
                f" where your API key or other data is sent; delete the file or use another folder"
            )


def _read_settings(file: Path) -> dict[str, str]:
    """Return the settings in a file as wandb parses it; none if it does not exist."""
    parser = configparser.ConfigParser()
    try:
        parser.read_string(read_text(file))  # unlike `parser.read`, does not block on a pipe
        return dict(parser.items("default")) if parser.has_section("default") else {}
    except NotRegularFileError as error:
        raise WandbError(f"{file} is {error}; delete it or use another folder") from None
    except OSError:  # wandb cannot read it, either
        return {}
    except (configparser.Error, ValueError) as error:
        raise WandbError(f"{file} cannot be read: {one_line(error)}") from None


def _online_run_or_none(folder: Path, init_kwargs: dict[str, Any]) -> "Run | None":
    pattern = f"wandb/run-*-{init_kwargs['id']}*"
    existing = set(folder.glob(pattern))
    try:
        return _init("online", folder, init_kwargs, FINISH_TIMEOUT)
    except Exception as error:
        reason = one_line(error)
    _try_to_stop_service()
    for unused in set(folder.glob(pattern)) - existing:
        shutil.rmtree(unused)
    is_inspection = init_kwargs.get("job_type") == "inspect"  # not uploaded by `posenc sync`
    command = experiment_command("sync", folder)
    remedy = "" if is_inspection else f" (upload later with `{command}`)"
    log.warning("W&B is not available online (%s); logging offline%s", reason, remedy)
    return None


def _init(mode: str, folder: Path, init_kwargs: dict[str, Any], finish_timeout: float) -> "Run":
    import wandb  # slow: takes a third of a second

    reject_special_files([folder / "wandb"])  # the folder may be from someone else
    check_folder_settings(mode)
    if mode == "online":
        if finish_timeout < UPLOAD_TIMEOUT:
            os.environ.setdefault("WANDB_HTTP_TIMEOUT", str(REQUEST_TIMEOUT))
        import wandb.apis.public.api  # reads WANDB_HTTP_TIMEOUT when it is first imported
    settings = wandb.Settings(
        mode=mode,  # type: ignore[arg-type]
        root_dir=str(folder),
        use_dot_wandb=False,  # else a folder `.wandb`, or a link with that name, would be used
        silent=True,
        quiet=True,
        console="off",
        disable_git=True,
        disable_code=True,
        save_code=False,
        force=False,
        relogin=False,
        init_timeout=INIT_TIMEOUT,
        finish_timeout=finish_timeout,
        finish_timeout_raises=True,
        **{k: v for k, v in PRIVATE_SETTINGS.items() if k in wandb.Settings.model_fields},
    )
    if os.environ.get("WANDB_RUN_ID") != init_kwargs["id"]:
        os.environ.pop("WANDB_SWEEP_ID", None)  # this run is not the trial of a W&B sweep agent
    wandb.setup(settings)
    if mode == "online" and not wandb.login(prompt=False, verify=False):
        raise wandb.Error("no API key found; run `wandb login` or set WANDB_API_KEY")
    run = wandb.init(settings=settings, resume="allow", reinit="create_new", **init_kwargs)
    for axis in ("step", "tokens", LENGTH_AXIS, POSITION_AXIS):
        run.define_metric(axis, hidden=True)
    for metrics, axis in STEP_METRICS.items():
        run.define_metric(metrics, step_metric=axis)
    return run


def _try_to_stop_service() -> None:
    with suppress(Exception, SystemExit):
        import wandb

        wandb.teardown()
