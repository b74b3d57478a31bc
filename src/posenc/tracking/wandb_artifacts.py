"""The artifacts of an online W&B run: its data, its code, and its final checkpoint.

Offline runs have none, because W&B would keep copies of the files in the user's home directory;
`posenc sync` adds them.
"""

import json
import logging
import sys
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

from omegaconf import DictConfig, OmegaConf

from posenc.config.errors import describe_error
from posenc.runs.code_snapshot import is_intact_copy
from posenc.runs.environment import source_folder
from posenc.runs.files import read_mapping
from posenc.runs.run_directory import RunDirectory
from posenc.tracking.wandb_config import experiment_folder, wandb_id
from posenc.training.checkpoint import latest_checkpoint

if TYPE_CHECKING:
    from wandb import Run

log = logging.getLogger(__name__)

CODE_ARTIFACT = "posenc-code"
REQUEST_SECONDS = 1.0  # how long to wait until W&B's client has received the request


def use_dataset(run: "Run", config: DictConfig) -> None:
    """Record the run's data as an input: the artifact `<data>.<fingerprint>`.

    The artifact describes the data but does not contain the tokens: it contains the data and
    tokenizer configurations and the counts of each split. `use_artifact` waits without a timeout
    until the server has the artifact, so it is called in a separate thread. Closing the run uploads
    the artifact; this is limited by a timeout.
    """
    import wandb

    fingerprint = config.planned.fingerprint
    meta_file = Path(config.get("cache_dir") or "") / fingerprint / "meta.json"
    description = {
        "fingerprint": fingerprint,
        **{key: OmegaConf.to_container(config[key]) for key in ("data", "tokenizer")},
        "splits": read_mapping(meta_file, {"splits": dict}).get("splits", {}),
    }
    name = wandb_id(config.choices.data, fingerprint)
    artifact = wandb.Artifact(name, type="dataset", metadata=description)
    with artifact.new_file("dataset.json") as file:
        json.dump(description, file, indent=2)

    def use() -> None:
        try:
            run.use_artifact(artifact)
        except Exception as error:  # usually because the run was closed while the thread waited
            log.info("W&B has not confirmed the artifact %s: %s", name, describe_error(error))

    thread = Thread(target=use, daemon=True)
    thread.start()
    thread.join(REQUEST_SECONDS)


def log_code(run: "Run", directory: RunDirectory, config: DictConfig) -> None:
    """Log posenc's code as it was when training started, and the modules of `config`.

    If the experiment has no intact copy of that code, logs the installed package. Leaves out
    modules that this process has not imported.
    """
    import wandb

    frozen = experiment_folder(directory) / ".code" / str(directory.status().resolved.get("code"))
    package = frozen / "posenc" if is_intact_copy(frozen) else source_folder()
    artifact = wandb.Artifact(CODE_ARTIFACT, type="code")
    for file in sorted(package.rglob("*.py")):
        artifact.add_file(str(file), name=f"posenc/{file.relative_to(package).as_posix()}")
    for name in config.modules:
        if file := getattr(sys.modules.get(name), "__file__", None):
            path = name.replace(".", "/") + ("/__init__" if Path(file).stem == "__init__" else "")
            artifact.add_file(file, name=f"modules/{path}{Path(file).suffix}")
    run.log_artifact(artifact)


def log_checkpoint(run: "Run", directory: RunDirectory) -> None:
    """Log the final checkpoint; W&B adds a version only if the checkpoint has changed."""
    import wandb

    checkpoint = latest_checkpoint(directory.checkpoints)
    if checkpoint is not None:
        metadata = {"step": checkpoint.step, "digest": checkpoint.digest}
        artifact = wandb.Artifact(f"{run.id}.checkpoint", type="model", metadata=metadata)
        artifact.add_file(str(checkpoint.path), name="checkpoint.ckpt")
        run.log_artifact(artifact)
