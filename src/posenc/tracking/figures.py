"""The figures of an experiment's report, as one W&B run beside those that they are about."""

import hashlib
from pathlib import Path

from posenc.tracking.identity import wandb_id
from posenc.tracking.session import close_run, uploading

JOB_TYPE = "report"


def figure_key(file: Path) -> str:
    return f"report/{file.stem}"


def upload_figures(folder: Path, *, project: str, entity: str | None) -> bool:
    """Log `folder`/report/*.png under `report/<figure>` unless the newest are there already."""
    files = sorted((folder / "report").glob("*.png"))
    if not files:
        return False
    name = folder.resolve().name
    identity = {"id": wandb_id(name, JOB_TYPE), "name": f"{name} {JOB_TYPE}", "group": name}
    config = {"experiment": name}
    with uploading(
        **identity, job_type=JOB_TYPE, project=project, entity=entity, tags=(), config=config
    ) as run:
        digest = hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:16]
        new = run.summary.get("figures") != digest
        if new:
            import wandb

            run.log({figure_key(file): wandb.Image(str(file)) for file in files})
            run.summary.update({"figures": digest})
        close_run(run, failed=False)
    return new
