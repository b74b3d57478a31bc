"""A run's final checkpoint as a W&B artifact."""

from typing import TYPE_CHECKING

from posenc.runs.run_directory import RunDirectory
from posenc.training.checkpoint import latest

if TYPE_CHECKING:
    from wandb import Run


def log_checkpoint(run: "Run", directory: RunDirectory) -> None:
    """W&B keeps one version for each content, however often it is logged."""
    import wandb

    checkpoint = latest(directory.checkpoints)
    if checkpoint is not None:
        about = {"step": checkpoint.step, "digest": checkpoint.digest}
        artifact = wandb.Artifact(f"{run.id}.checkpoint", type="model", metadata=about)
        artifact.add_file(str(checkpoint.path), name="checkpoint.ckpt")
        run.log_artifact(artifact)
