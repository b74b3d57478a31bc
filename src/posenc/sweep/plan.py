"""Planning: every job composed, checked and hashed before the first directory is written."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from posenc import __version__
from posenc.config.compose import compose, refuse_strangers
from posenc.config.errors import ConfigError
from posenc.config.identity import run_hash, run_name, science
from posenc.config.numbers import canonical
from posenc.config.settings import check_settings, evaluation_lengths
from posenc.data.build import build_data
from posenc.data.tokenized import TokenizedData
from posenc.evaluation.rows import missing, requested
from posenc.record.files import read_json, write_atomic, write_json
from posenc.record.lock import is_locked
from posenc.record.rundir import RunDirectory
from posenc.sweep.facts import check_components, check_data

NOT_OF_A_RUN = ("grids", "sizes", "retry", "hydra")
Report = Callable[[str], None]


@dataclass(frozen=True)
class Job:
    """One planned run: its directory, its frozen configuration, its data."""

    run: RunDirectory
    config: DictConfig
    data: TokenizedData


def plan(
    jobs: Sequence[Sequence[str]], config_dirs: Sequence[Path], command: str, report: Report
) -> list[Job]:
    """Plan a run for each job's overrides; ConfigError, with nothing written, if any is wrong.

    `command` is what a person typed, kept so that the sweep can be told how to finish itself.
    """
    configs = [resolved(overrides, config_dirs) for overrides in jobs]
    _all_or_nothing(configs, check_components)
    datasets = _datasets(configs, report)
    planned = [_job(config, datasets[_data_key(config)]) for config in configs]
    for job in planned:
        _check_directory(job)
    for job in planned:
        _write(job)
    _write_plan(planned, command)
    return planned


def resolved(overrides: Sequence[str], config_dirs: Sequence[Path]) -> DictConfig:
    """One job's configuration, interpolations resolved, group choices noted, settings checked."""
    composed = compose("train", overrides, config_dirs, with_hydra=True)
    plain = OmegaConf.masked_copy(composed, [key for key in composed if key != "hydra"])
    refuse_strangers(plain, "train", config_dirs)
    choices = {
        group: option
        for group, option in composed.hydra.runtime.choices.items()
        if option is not None and not group.startswith("hydra/")
    }
    with_choices = {key: composed[key] for key in composed if key not in NOT_OF_A_RUN}
    whole: Any = OmegaConf.to_container(
        OmegaConf.create({**with_choices, "choices": choices}), resolve=True
    )
    config = OmegaConf.create(canonical(whole))
    check_settings(config)
    config.modules = sorted({*config.modules, *_foreign_modules(config)})
    return config


def _foreign_modules(node: Any) -> set[str]:
    """Modules outside posenc that the person's own overrides or YAMLs build from."""
    if not OmegaConf.is_config(node):
        return set()
    children = node.values() if isinstance(node, DictConfig) else node
    found = {module for child in children for module in _foreign_modules(child)}
    target = node.get("_target_") if isinstance(node, DictConfig) else None
    if isinstance(target, str) and not target.startswith("posenc."):
        found.add(target.split(".")[0])
    return found


def _all_or_nothing(configs: Sequence[DictConfig], check: Callable[[DictConfig], None]) -> None:
    """Run `check` on all and raise every different complaint at once."""
    complaints: dict[str, None] = {}
    for config in configs:
        try:
            check(config)
        except ConfigError as error:
            complaints[str(error)] = None
    if complaints:
        raise ConfigError("\n".join(complaints))


def _datasets(configs: Sequence[DictConfig], report: Report) -> dict[str, TokenizedData]:
    datasets: dict[str, TokenizedData] = {}
    for config in configs:
        key = _data_key(config)
        if key not in datasets:
            datasets[key] = build_data(config, report)
    return datasets


def _data_key(config: DictConfig) -> str:
    return OmegaConf.to_yaml(OmegaConf.masked_copy(config, ["data", "tokenizer", "cache_dir"]))


def _job(config: DictConfig, data: TokenizedData) -> Job:
    parameters = check_data(config, data)
    digest = run_hash(science(config, data.fingerprint))
    name = run_name(config, config.choices.encoding, digest)
    config.frozen = {
        "run": name,
        "hash": digest,
        "fingerprint": data.fingerprint,
        "lengths": evaluation_lengths(config),
        "parameters": parameters,
        "posenc": __version__,
    }
    return Job(RunDirectory(Path(config.outputs_dir) / config.name / name), config, data)


def _check_directory(job: Job) -> None:
    """Refuse a directory of that name whose configuration is another's."""
    path = job.run.path
    if not job.run.config_file.exists():
        return
    try:
        there = job.run.config()
        digest = run_hash(science(there, there.frozen.fingerprint))
    except Exception as error:
        raise ConfigError(
            f"{path}/config.yaml cannot be read ({error}); move the directory away"
        ) from None
    if digest != job.config.frozen.hash:
        raise ConfigError(
            f"{path} belongs to another configuration (hash {digest}, not"
            f" {job.config.frozen.hash}); move the directory away or give another name=..."
        )


def _write(job: Job) -> None:
    """Freeze the configuration; what a living process works from is left alone."""
    run = job.run
    if is_locked(run.lock_file):
        return
    try:
        write_atomic(run.config_file, OmegaConf.to_yaml(job.config))
        job.data.tokenizer.save(run.tokenizer_file)
        _set_pending(job)
    except OSError as error:
        raise ConfigError(
            f"{run.path} cannot be written ({error.strerror}); give another outputs_dir=..."
        ) from None


def _set_pending(job: Job) -> None:
    """Pending: a run that never started, and a finished one that lacks a row now asked for."""
    run, status = job.run, job.run.status()
    lacks = missing(requested(job.config, job.data.fingerprint), run.rows())
    if not run.status_file.exists() or (status.state == "finished" and lacks):
        status.but(state="pending", work_done=0.0).write(run.status_file)


def _write_plan(jobs: Sequence[Job], command: str) -> None:
    folder, config = jobs[0].run.path.parent, jobs[0].config
    file = folder / "plan.json"
    before = read_json(file)["runs"] if file.exists() else []
    runs = [*before, *(job.run.name for job in jobs if job.run.name not in before)]
    write_json(
        file,
        {
            "name": config.name,
            "experiment": config.choices.get("experiment"),
            "size": config.get("size"),
            "command": command,
            "about": OmegaConf.to_container(config.about) if config.about else None,
            "runs": list(dict.fromkeys(runs)),
        },
    )
