"""Secrets in the environment are not in the files, output or report of a run."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SECRETS = {
    "WANDB_API_KEY": "feedface" * 5,
    "HF_TOKEN": "hf_abcdefghijklmnopqrstuvwxyz012345",
    "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMIK7MDENGbPxRfiCYEXAMPLEKEY",
}


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["offline", "online"])
def test_no_secret_is_in_files_output_or_report(
    small_job: list[str], tmp_path: Path, mode: str
) -> None:
    """Online, the client has the key, cannot reach a server, and continues offline."""
    environment = os.environ | SECRETS | {"HOME": str(tmp_path), "WANDB_BASE_URL": "http://[::1]:9"}
    train = ["train", *small_job, "logger=wandb", f"logger.mode={mode}", "tokens=1920"]
    for words in (train, ["report", "name=scratch"], ["status", "name=scratch", "--json"]):
        result = subprocess.run(
            [sys.executable, "-m", "posenc", *words],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
        )
        assert result.returncode == 0, result.stderr
        for secret in SECRETS.values():
            assert secret.encode() not in result.stdout + result.stderr
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert any(path.suffix == ".wandb" for path in written)
    assert any(path.name == "index.html" for path in written)
    for path in written:
        for name, secret in SECRETS.items():
            assert secret.encode() not in path.read_bytes(), f"{name} in {path}"
