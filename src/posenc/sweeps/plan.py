"""Plans a sweep: all jobs are composed and validated before any run directory is written."""

import re
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from posenc import __version__
from posenc.config.component_types import user_targets
from posenc.config.components import check
from posenc.config.compose import Composer
from posenc.config.errors import ConfigError, PosencError, RunError
from posenc.config.identity import identity, key_without_seed, run_hash, run_name
from posenc.config.settings import evaluation_lengths
from posenc.config.steps import evaluated_steps
from posenc.data.build_data import build_data
from posenc.data.dataset import Dataset
from posenc.encodings.base import Encoding
from posenc.evaluation.requests import missing_row_keys, requested_row_keys
from posenc.jobs.job_config import compose_sweep_jobs
from posenc.jobs.validate import validate, validate_data, validate_devices
from posenc.model.build import build_meta_model, check_memory
from posenc.runs.files import reject_special_files, walk_entries
from posenc.runs.lock import is_locked
from posenc.runs.plan_file import read_plan, update_plan
from posenc.runs.run_directory import RunDirectory
from posenc.runs.saved_config import write_config
from posenc.runs.trusted_code import remember
from posenc.sweeps.launcher import PlannedRun
from posenc.sweeps.reuse import copy_run, finished_run
from posenc.tracking.build_tracker import wandb_destination
from posenc.training.checkpoint import list_checkpoints, list_weights

PLAN_KEYS = ("premises", "claims", "published")
"""Keys that are written to the experiment's plan, not to its runs."""
UPDATED_ON_RESUME = (
    *("name", "choices", "about", "cache_dir", "modules"),
    *("evaluation", "ngram_order", "logger", "profiler", "kernel", "devices", "trainer"),
)
"""Keys that a resumed or copied run takes from the new command."""
NUM_WRITERS = 16
"""Threads that write the files of runs; they spend most of their time waiting for the disk."""
TARGET = re.compile(r'"_target_": "[^"]*"')
"""A `_target_` in a configuration that is written as JSON."""


@dataclass(frozen=True)
class Job:
    """The run directory, configuration and data of one job.

    `values` is the complete configuration as plain values. Jobs that differ only in their seed
    share one `config`, which has the seed of one of them and no `planned` values.
    """

    run: RunDirectory
    config: DictConfig
    values: dict[str, Any]
    data: Dataset


def plan(
    jobs: Sequence[Sequence[str]],
    config_dirs: Sequence[Path],
    command: str,
    on_progress: Callable[[str], None],
    *,
    composer: Composer | None = None,
    reuse: Sequence[str] = (),
    local: bool = True,
) -> list[PlannedRun]:
    """Plan a run for the overrides of each job.

    Before any run directory is written, raises ConfigError if a job is invalid, and RunError if the
    experiment's plan is corrupt. `command` is the command line, which `posenc status` prints.
    Pass a `composer` to reuse its compositions. Finished runs of experiments in `reuse` are copied.
    If `local`, runs must fit this machine. A run whose existing directory cannot be used is not
    written and has a `problem`; if that is the case for all runs, raises the error of the first.
    """
    composed = compose_sweep_jobs(jobs, composer or Composer("train", config_dirs))
    shared = {key: composed[0][key] for key in PLAN_KEYS}
    all_values = [{k: v for k, v in job.items() if k not in PLAN_KEYS} for job in composed]
    keys = [key_without_seed(values) for values in all_values]
    configs = {k: OmegaConf.create(v) for k, v in dict(zip(keys, all_values, strict=True)).items()}
    encodings = _validate_all(configs, local=local)
    for folder in {Path(config.outputs_dir) / config.name for config in configs.values()}:
        read_plan(folder)  # raises RunError if it is corrupt
    prepared = _prepare_data(configs, encodings, on_progress, local=local)
    all_jobs = [
        _build_job(configs[key], values, *prepared[key])
        for key, values in zip(keys, all_values, strict=True)
    ]
    unique_jobs = _without_duplicates(all_jobs)
    sources = {job.run: finished_run(job.run, reuse) for job in unique_jobs}
    problems: dict[RunDirectory, PosencError] = {}
    for job in unique_jobs:
        if problem := _directory_problem(replace(job, run=sources[job.run] or job.run)):
            problems[job.run] = problem
    if len(problems) == len(unique_jobs):
        raise next(iter(problems.values()))
    written = [job for job in unique_jobs if job.run not in problems]
    with ThreadPoolExecutor(NUM_WRITERS) as pool:
        list(pool.map(_write_run, written, (sources[job.run] for job in written)))
    _update_plan(unique_jobs, shared, command)
    _trust(configs)
    return [_planned_run(job, problems.get(job.run)) for job in unique_jobs]


def _planned_run(job: Job, problem: PosencError | None) -> PlannedRun:
    config, message = job.config, None if problem is None else str(problem)
    modules, accelerator = tuple(config.modules), config.trainer.accelerator
    return PlannedRun(job.run, modules, config.devices, accelerator, message)


def _update_plan(jobs: Sequence[Job], shared: Mapping[str, Any], command: str) -> None:
    config = jobs[0].config
    values = {
        "name": config.name,
        "experiment": config.choices.get("experiment"),
        "size": config.get("size"),
        "about": jobs[0].values["about"],
        **shared,
    }
    update_plan(jobs[0].run.path.parent, values, command, [job.run.name for job in jobs])


def _trust(configs: Mapping[str, DictConfig]) -> None:
    """Record as trusted the jobs' classes outside posenc and the W&B projects they log to."""
    distinct = {tuple(TARGET.findall(key)): key for key in configs if configs[key].modules}
    values: list[Any] = [OmegaConf.to_container(configs[key]) for key in distinct.values()]
    loggers = {str(config.logger): config.logger for config in configs.values()}
    destinations = filter(None, map(wandb_destination, loggers.values()))
    remember({target for job in values for target in user_targets(job)}, destinations)


def _validate_all(configs: Mapping[str, DictConfig], *, local: bool) -> dict[str, Encoding]:
    """Return the encoding of each configuration.

    Raises one ConfigError that lists every distinct problem.
    """
    encodings: dict[str, Encoding] = {}
    verified: set[str] = set()
    problems: dict[str, None] = {}
    for key, config in configs.items():
        try:
            encodings[key] = validate(config, verified)
            if local:
                validate_devices(config, config.devices)
        except ConfigError as error:
            problems[str(error)] = None
    if problems:
        raise ConfigError("\n".join(problems))
    return encodings


def _prepare_data(
    configs: Mapping[str, DictConfig],
    encodings: Mapping[str, Encoding],
    on_progress: Callable[[str], None],
    *,
    local: bool,
) -> dict[str, tuple[Dataset, int]]:
    """Return the data of each configuration, and the number of parameters of its model."""
    datasets: dict[str, Dataset] = {}
    prepared = {}
    for key, config in configs.items():
        data_key = str([config[name] for name in ("data", "tokenizer", "cache_dir")])
        if data_key not in datasets:
            datasets[data_key] = build_data(config, on_progress)
        data = datasets[data_key]
        validate_data(config, data)
        parameters = build_meta_model(config, data.vocab_size, encodings[key]).parameter_count()
        if local:
            check_memory(parameters)
        prepared[key] = data, parameters
    return prepared


def _build_job(config: DictConfig, values: dict[str, Any], data: Dataset, parameters: int) -> Job:
    """Return the job: its run directory, and `values` with the results of planning added."""
    digest = run_hash(identity(values, data.fingerprint))
    name = run_name(values, digest)
    planned = {
        "run": name,
        "hash": digest,
        "fingerprint": data.fingerprint,
        "lengths": evaluation_lengths(config),
        "parameters": parameters,
        "tokenizer": data.tokenizer.file_digest,
        "posenc_version": __version__,
    }
    run = RunDirectory(Path(config.outputs_dir) / config.name / name)
    return Job(run, config, {**values, "planned": planned}, data)


def _without_duplicates(jobs: list[Job]) -> list[Job]:
    """Keep one job per run. Raises ConfigError if two jobs of a run differ."""
    unique: dict[Path, Job] = {}
    for job in jobs:
        first = unique.setdefault(job.run.path, job)
        if job is first:
            continue
        for key in job.values:
            if job.values[key] != first.values[key]:
                raise ConfigError(
                    f"the sweep contains the run {job.run.name} twice, with different values of"
                    f" {key}, which does not change a run's hash; use a separate command and"
                    f" a different name=... for each value"
                )
    return list(unique.values())


def _directory_problem(job: Job) -> PosencError | None:
    """Return why the directory of a run cannot be used, so that other runs continue without it.

    Raises ConfigError if the job evaluates weights that its training has not kept.
    """
    try:
        _check_directory(job)
    except PosencError as error:
        return error
    if missing := _token_counts_without_weights(job):
        raise ConfigError(
            f"evaluation.at_tokens={missing}: {job.run.path} was trained past these token counts"
            f" without keeping the weights; use a different name=..., or delete the run with"
            f" `posenc clean run={job.run.path} --yes`"
        )
    return None


def _check_directory(job: Job) -> None:
    """Raise ConfigError if the run directory has an unreadable or a different configuration.

    Raises RunError if it contains anything but files and folders, such as a symbolic link.
    """
    path = job.run.path
    reject_special_files([path, *walk_entries(path)])
    if not job.run.config_file.exists():
        return
    try:
        existing = job.run.config()
        existing.modules = job.config.modules
        check(existing.encoding, name="encoding", modules=list(existing.modules))
        digest = run_hash(identity(existing, existing.planned.fingerprint))
    except Exception as error:
        raise ConfigError(
            f"{path}/config.yaml is unreadable ({error}); delete the directory or move it elsewhere"
        ) from None
    planned = job.values["planned"]
    if digest != planned["hash"]:
        raise ConfigError(
            f"{path} belongs to a different configuration (hash {digest}, not"
            f" {planned['hash']}); delete it, move it elsewhere or use a different name=..."
        )


def _token_counts_without_weights(job: Job) -> list[int]:
    """Return the requested `at_tokens` that training passed without keeping the weights."""
    trained = max((c.step for c in list_checkpoints(job.run.checkpoints)), default=0)
    kept = {weights.step for weights in list_weights(job.run.checkpoints)}
    missing = {key["at_tokens"] for key in _missing_row_keys(job)} - {None}
    steps = {at_tokens: evaluated_steps(job.config)[at_tokens] for at_tokens in missing}
    return sorted(at for at, step in steps.items() if step <= trained and step not in kept)


def _missing_row_keys(job: Job) -> list[dict[str, Any]]:
    """Return the requested evaluation rows that a run lacks: all of them if its file is corrupt."""
    try:
        rows = job.run.rows()
    except RunError:  # reported by the run's own process, so that other runs continue
        rows = []
    return missing_row_keys(requested_row_keys(job.config, job.data.fingerprint), rows)


def _write_run(job: Job, source: RunDirectory | None) -> None:
    """Copy `source`, if any, and write config, tokenizer and status, unless the run is active."""
    run = job.run
    if source is not None:
        copy_run(source, run)
    if is_locked(run.lock_file):
        return
    values: Any = job.values
    lacks_ngrams = False
    if run.config_file.exists() and list_checkpoints(run.checkpoints):
        # A run with a checkpoint keeps all settings except those in UPDATED_ON_RESUME.
        config = run.config()
        lacks_ngrams = config.get("ngram_order") != job.config.ngram_order
        for key in UPDATED_ON_RESUME:
            config[key] = job.config[key]
        config.planned = {**job.values["planned"], "posenc_version": config.planned.posenc_version}
        values = OmegaConf.to_container(config)
    write_config(run.config_file, values)
    job.data.tokenizer.save(run.tokenizer_file)
    status = run.status()
    incomplete = status.state == "finished" and (lacks_ngrams or _missing_row_keys(job))
    if not run.status_file.exists() or incomplete:
        status.replace(state="pending", work_done=0.0).write(run.status_file)
