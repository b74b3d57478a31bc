"""Plans a sweep: all jobs are composed and validated before any run directory is written."""

import re
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from posenc import __version__
from posenc.config.component_types import user_targets
from posenc.config.compose import Composer
from posenc.config.errors import ConfigError, PosencError
from posenc.config.identity import identity, key_without_seed, run_name, short_hash
from posenc.config.settings import evaluation_lengths
from posenc.data.build_data import build_data
from posenc.data.dataset import Dataset
from posenc.encodings.base import Encoding
from posenc.jobs.job_config import compose_sweep_jobs
from posenc.jobs.validate import validate, validate_data, validate_devices
from posenc.jobs.verify import verify_model
from posenc.model.build import build_meta_model, check_memory
from posenc.runs.plan_file import read_plan, update_plan
from posenc.runs.run_directory import RunDirectory
from posenc.runs.trusted_code import record_trusted
from posenc.sweeps.launcher import PlannedRun, config_file_digest
from posenc.sweeps.run_writer import Job, WrittenRun, directory_problem, find_copy, write_run
from posenc.tracking.build_tracker import wandb_destination

PLAN_KEYS = ("premises", "claims", "published")
"""Keys that are written to the experiment's plan, not to its runs."""
NUM_WRITERS = 16
"""Threads that write run files; they spend most of their time waiting for the disk."""
TARGET = re.compile(r'"_target_": "[^"]*"')
"""A `_target_` in a configuration that is written as JSON."""


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
    Pass a `composer` to reuse its composed configs. Finished runs of experiments in `reuse` are
    copied. If `local`, runs must fit on this machine. A run whose existing directory cannot be used
    is not written and has a `problem`; if this holds for all runs, raises the first run's error.
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
    sources = {job.run: find_copy(job, reuse) for job in unique_jobs}
    problems: dict[RunDirectory, PosencError] = {}
    for job in unique_jobs:
        if problem := directory_problem(replace(job, run=sources[job.run] or job.run)):
            problems[job.run] = problem
    if len(problems) == len(unique_jobs):
        raise next(iter(problems.values()))
    results = {run: WrittenRun(problem) for run, problem in problems.items()}
    to_write = [job for job in unique_jobs if job.run not in problems]
    with ThreadPoolExecutor(NUM_WRITERS) as pool:
        written = pool.map(write_run, to_write, (sources[job.run] for job in to_write))
        results |= zip((job.run for job in to_write), written, strict=True)
    _update_plan(unique_jobs, shared, command)
    _trust(configs, command)
    return [_planned_run(job, results[job.run]) for job in unique_jobs]


def _planned_run(job: Job, result: WrittenRun) -> PlannedRun:
    config, problem = job.config, result.problem
    return PlannedRun(
        job.run,
        tuple(config.modules),
        config.devices,
        config.trainer.accelerator,
        problem=None if problem is None else str(problem),
        config_digest=config_file_digest(job.run),
        kept_settings=result.kept_settings,
    )


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


def _trust(configs: Mapping[str, DictConfig], command: str) -> None:
    """Record the jobs' custom classes, W&B projects, `cache_dir` and command as trusted."""
    distinct = {tuple(TARGET.findall(key)): key for key in configs if configs[key].modules}
    values: list[Any] = [OmegaConf.to_container(configs[key]) for key in distinct.values()]
    loggers = {str(config.logger): config.logger for config in configs.values()}
    destinations = filter(None, map(wandb_destination, loggers.values()))
    targets = {target for job in values for target in user_targets(job)}
    caches = {config.cache_dir for config in configs.values() if not _is_default_cache(config)}
    record_trusted(
        {"target": targets, "destination": destinations, "cache": caches, "command": [command]}
    )


def _is_default_cache(config: DictConfig) -> bool:
    return config.cache_dir == str(Path(config.outputs_dir) / ".data")


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
    verified_models: set[str] = set()
    prepared = {}
    for key, config in configs.items():
        data_key = str([config[name] for name in ("data", "tokenizer", "cache_dir")])
        if data_key not in datasets:
            datasets[data_key] = build_data(config, on_progress)
        data = datasets[data_key]
        validate_data(config, data)
        verify_model(config, data.vocab_size, verified_models)
        parameters = build_meta_model(config, data.vocab_size, encodings[key]).parameter_count()
        if local:
            check_memory(parameters)
        prepared[key] = data, parameters
    return prepared


def _build_job(config: DictConfig, values: dict[str, Any], data: Dataset, parameters: int) -> Job:
    """Return the job: its run directory, and `values` with the results of planning added."""
    run_identity = identity(values, data.fingerprint)
    digest = short_hash(run_identity)
    name = run_name(values, digest)
    sources = run_identity.get("sources")
    planned = {
        "run": name,
        "hash": digest,
        "fingerprint": data.fingerprint,
        "lengths": evaluation_lengths(config),
        "parameters": parameters,
        "tokenizer": data.tokenizer.file_digest,
        "posenc_version": __version__,
        **({"sources": short_hash(sources)} if sources else {}),
    }
    run = RunDirectory(Path(config.outputs_dir) / config.name / name)
    return Job(run, config, {**values, "planned": planned}, run_identity, data)


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
