"""Saving a dashboard on its server, or as JSON."""

import json
from pathlib import Path
from typing import Any

import wandb
import wandb_workspaces.reports.v2 as wr
import wandb_workspaces.workspaces as ws
from wandb_workspaces.workspaces.internal import get_view_dict

from posenc.config.errors import RunError, named, one_line
from posenc.runs.files import write_json
from posenc.tracking.session import host_untouched

PLACEHOLDER = "ENTITY"  # in a specification that names none
SECONDS = 20


def write_spec(file: Path, workspace: ws.Workspace, report: wr.Report) -> None:
    """Both as W&B's own JSON; needs no network and no key."""
    write_json(file, {"workspace": _spec(workspace), "report": _spec(report)})


def save(workspace: ws.Workspace, report: wr.Report) -> tuple[str, str]:
    """Create both or update those that are there; their addresses. RunError where W&B fails."""
    with host_untouched():
        try:
            wandb.setup(wandb.Settings(silent=True))
            workspace._internal_id = _workspace_id(workspace)
            report.id = _report_id(report)
            return workspace.save().url, report.save().url
        except Exception as error:
            told = named(error)
    raise RunError(f"W&B failed: {told}; --spec writes the dashboard without it")


def default_entity() -> str:
    with host_untouched():
        try:
            return wandb.Api(timeout=SECONDS).default_entity or ""
        except Exception as error:
            reason = one_line(error)
    raise RunError(f"W&B cannot be used online: {reason}; --spec writes the dashboard without it")


def _workspace_id(workspace: ws.Workspace) -> str:
    """The id of the view of that name, or "" where there is none yet."""
    name = workspace._internal_name.removeprefix("nw-").removesuffix("-v")
    try:
        return get_view_dict(workspace.entity, workspace.project, name)["id"]
    except ValueError:
        return ""


def _report_id(report: wr.Report) -> str:
    path = f"{report.entity}/{report.project}"
    there = wandb.Api(timeout=SECONDS).reports(path)
    return next((found.id for found in there if found.display_name == report.title), "")


def _spec(part: ws.Workspace | wr.Report) -> dict[str, Any]:
    return json.loads(part._to_model().model_dump_json(by_alias=True, exclude_none=True))
