"""Saves a W&B workspace and report; the only module that uses private parts of wandb-workspaces.

Version 0.4.13 has no public API to set ids, to update a workspace by name, or to export workspaces
and reports as JSON without a server, so the exact version is pinned.
"""

import json
from pathlib import Path
from typing import Any

import wandb
import wandb_workspaces.reports.v2 as wr
import wandb_workspaces.workspaces as ws
from wandb_workspaces.reports.v2.interface import Panel
from wandb_workspaces.workspaces.internal import get_view_dict

from posenc.config.errors import PosencError, RunError, describe_error, one_line
from posenc.runs.files import write_json
from posenc.tracking.wandb_client import check_folder_settings, restored_process_state

ENTITY_PLACEHOLDER = "ENTITY"
API_TIMEOUT = 20  # seconds
REMEDY = "add --spec to write the dashboard to a file instead"


def set_id(part: Panel | wr.Runset, name: str) -> None:
    """Set a deterministic id: the name in lower case with spaces replaced by hyphens."""
    part._id = name.lower().replace(" ", "-")


def set_view_name(workspace: ws.Workspace, name: str) -> None:
    """Set the name under which the server stores the workspace."""
    workspace._internal_name = f"nw-{name}-v"


def write_spec(file: Path, workspace: ws.Workspace, report: wr.Report) -> None:
    """Write the workspace and the report as W&B JSON, without network access or an API key."""
    write_json(file, {"workspace": _spec(workspace), "report": _spec(report)})


def save(workspace: ws.Workspace, report: wr.Report) -> tuple[str, str]:
    """Create or update the workspace and the report on the server and return their URLs.

    Raises RunError if W&B fails.
    """
    try:
        with restored_process_state():
            check_folder_settings("online")
            wandb.setup(wandb.Settings(silent=True))
            workspace._internal_id = _workspace_id(workspace)
            report.id = _report_id(report)
            return workspace.save().url, report.save().url
    except PosencError:
        raise
    except Exception as error:
        raise RunError(f"W&B failed: {describe_error(error)}; {REMEDY}") from None


def default_entity() -> str:
    """Return the default entity of the W&B account. Raises RunError if W&B fails."""
    try:
        with restored_process_state():
            check_folder_settings("online")
            return wandb.Api(timeout=API_TIMEOUT).default_entity or ""
    except PosencError:
        raise
    except Exception as error:
        raise RunError(f"cannot look up your W&B entity: {one_line(error)}; {REMEDY}") from None


def _workspace_id(workspace: ws.Workspace) -> str:
    """Return the id of the saved workspace with this name, or "" if there is none."""
    name = workspace._internal_name.removeprefix("nw-").removesuffix("-v")
    try:
        return get_view_dict(workspace.entity, workspace.project, name)["id"]
    except ValueError:
        return ""


def _report_id(report: wr.Report) -> str:
    """Return the id of the saved report with this title, or "" if there is none."""
    saved = wandb.Api(timeout=API_TIMEOUT).reports(f"{report.entity}/{report.project}")
    return next((other.id for other in saved if other.display_name == report.title), "")


def _spec(part: ws.Workspace | wr.Report) -> dict[str, Any]:
    return json.loads(part._to_model().model_dump_json(by_alias=True, exclude_none=True))
