"""Planning: every job composed, checked and hashed before the first directory is written."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from posenc import __version__
from posenc.config.components import check, own_modules
from posenc.config.compose import compose
from posenc.config.errors import ConfigError
from posenc.config.identity import identity, run_hash, run_name
from posenc.config.paths import options
from posenc.config.settings import check_settings, evaluation_lengths
from posenc.config.values import values_of
from posenc.data.build_data import build_data
from posenc.data.dataset import Dataset
from posenc.evaluation.requests import missing_rows, requested_rows
from posenc.report.claim_parser import check_claims
from posenc.report.published_curves import parse_published
from posenc.runs.files import read_json, write_atomic, write_json
from posenc.runs.lock import is_locked, lock
from posenc.runs.run_directory import RunDirectory
from posenc.sweeps.facts import COMPONENTS, check_components, check_data, check_parts
from posenc.training.checkpoint import list_checkpoints

NOT_OF_A_RUN = ("grids", "sizes", "retry")
OF_THE_PLAN = ("claims", "published")
Report = Callable[[str], None]


@dataclass(frozen=True)
class Job:
    """One planned run: its directory, its frozen configuration, its data."""

    run: RunDirectory
    config: DictConfig
    data: Dataset


def plan(
    jobs: Sequence[Sequence[str]],
    config_dirs: Sequence[Path],
    command: str,
    report: Report,
    *,
    here: bool = True,
) -> list[Job]:
    """Plan a run for each job's overrides; ConfigError, with nothing written, if any is wrong.

    `command` is what a person typed, kept so that the sweep can be told how to finish itself.
    Devices are looked for where the runs are to have those of this machine (`here`).
    """
    known = compose("train", [], config_dirs)
    configs = [resolved(overrides, config_dirs, known) for overrides in jobs]
    _all_or_nothing(configs, check_components if here else check_parts)
    datasets = _datasets(configs, report)
    planned = _distinct([_job(config, datasets[_data_key(config)]) for config in configs])
    for job in planned:
        _check_directory(job)
    for job in planned:
        _write(job)
    _write_plan(planned, command)
    return planned


def resolved(
    overrides: Sequence[str], config_dirs: Sequence[Path], known: DictConfig | None = None
) -> DictConfig:
    """One job's configuration, interpolations resolved, group choices noted, settings checked.

    `known` is what no overrides compose to, where the caller has it at hand.
    """
    values = values_of("train", overrides, config_dirs, known)
    for group in COMPONENTS:
        if group not in values["choices"]:
            there = ", ".join(options(group, list(config_dirs)))
            raise ConfigError(f"{group} is missing; give {group}= one of {there}")
    of_a_run = {key: value for key, value in values.items() if key not in NOT_OF_A_RUN}
    config = OmegaConf.create(of_a_run)
    check_settings(config)
    check_claims(values["claims"], list(config_dirs))
    parse_published(values["published"])
    config.modules = sorted({*config.modules, *own_modules(values)})
    return config


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


def _datasets(configs: Sequence[DictConfig], report: Report) -> dict[str, Dataset]:
    datasets: dict[str, Dataset] = {}
    for config in configs:
        key = _data_key(config)
        if key not in datasets:
            datasets[key] = build_data(config, report)
    return datasets


def _data_key(config: DictConfig) -> str:
    return OmegaConf.to_yaml(OmegaConf.masked_copy(config, ["data", "tokenizer", "cache_dir"]))


def _job(config: DictConfig, data: Dataset) -> Job:
    parameters = check_data(config, data)
    digest = run_hash(identity(config, data.fingerprint))
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


def _distinct(jobs: list[Job]) -> list[Job]:
    """Each run once; ConfigError for two that differ in what does not name a run."""
    unique: dict[Path, Job] = {}
    for job in jobs:
        other = unique.setdefault(job.run.path, job)
        for key in job.config:
            if job.config[key] != other.config[key]:
                raise ConfigError(
                    f"the sweep has {job.run.name} twice, with another {key}, which is not part of"
                    f" what a run is; sweep it in commands of its own, with another name=..."
                )
    return list(unique.values())


def _check_directory(job: Job) -> None:
    """Refuse a directory of that name whose configuration is another's."""
    path = job.run.path
    if not job.run.config_file.exists():
        return
    try:
        there = job.run.config()
        check(there.encoding, name="encoding", modules=list(job.config.modules), given=1)
        digest = run_hash(identity(there, there.frozen.fingerprint))
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
    config = job.config
    if list_checkpoints(run.checkpoints):  # what it was trained with so far stays as it was
        config = run.config()
        for key in ("evaluation", "logger", "about", "devices", "trainer"):
            config[key] = job.config[key]
        config.frozen.lengths = job.config.frozen.lengths
    of_a_run = OmegaConf.masked_copy(config, [key for key in config if key not in OF_THE_PLAN])
    write_atomic(run.config_file, OmegaConf.to_yaml(of_a_run))
    job.data.tokenizer.save(run.tokenizer_file)
    _set_pending(job)


def _set_pending(job: Job) -> None:
    """Pending: a run that never started, and a finished one that lacks a row now asked for."""
    run, status = job.run, job.run.status()
    lacks = missing_rows(requested_rows(job.config, job.data.fingerprint), run.rows())
    if not run.status_file.exists() or (status.state == "finished" and lacks):
        status.but(state="pending", work_done=0.0).write(run.status_file)


def _write_plan(jobs: Sequence[Job], command: str) -> None:
    folder, config = jobs[0].run.path.parent, jobs[0].config
    plain: Any = OmegaConf.to_container(config)
    file = folder / "plan.json"
    with lock(folder / ".plan.lock", wait=True):
        before = read_json(file) if file.exists() else {"runs": []}
        planned = [job.run.name for job in jobs]
        told = {
            "name": config.name,
            "experiment": config.choices.get("experiment"),
            "size": config.get("size"),
            "command": command,
            "commands": {**before.get("commands", {}), **dict.fromkeys(planned, command)},
            **{key: plain[key] for key in ("about", *OF_THE_PLAN)},
            "runs": list(dict.fromkeys([*before["runs"], *planned])),
        }
        write_json(file, told)
