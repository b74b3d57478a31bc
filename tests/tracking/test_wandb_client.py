"""W&B runs are opened on the user's server and written into the experiment's own folder."""

from pathlib import Path

import pytest
import wandb

from posenc.config.errors import RunError
from posenc.tracking.wandb_client import WandbError, check_folder_settings, init_run

SERVER = "http://127.0.0.1:9"


@pytest.fixture(autouse=True)
def current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A current directory with an empty wandb/, and a user whose settings name SERVER."""
    monkeypatch.delenv("WANDB_BASE_URL", raising=False)
    monkeypatch.setenv("WANDB_API_KEY", 40 * "0")
    monkeypatch.setenv("WANDB_CONFIG_DIR", str(tmp_path / "user"))
    for folder in ("user", "project/wandb"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "user" / "settings").write_text(f"[default]\nbase_url = {SERVER}\n")
    monkeypatch.chdir(tmp_path / "project")
    return tmp_path / "project"


@pytest.mark.parametrize(
    "line", ["base_url = https://example.org", "api_key = 1", "https_proxy = a", "root_dir = /tmp"]
)
def test_settings_of_the_current_folder_do_not_decide_where_the_key_is_sent(line: str) -> None:
    Path("wandb/settings").write_text(f"[default]\nentity = team\n{line}\n")
    with pytest.raises(WandbError, match=f"wandb/settings .* sets {line.split()[0]}"):
        check_folder_settings("online")
    with pytest.raises(WandbError, match="wandb/settings"), init_run(id="a"):
        pass


def test_an_offline_run_does_not_use_private_settings_of_the_current_folder(
    current_folder: Path,
) -> None:
    file = Path("wandb/settings")
    file.write_text("[default]\nconsole = off\nbase_url = https://example.org\n")
    check_folder_settings("offline")
    file.write_text('[default]\nx_stats_open_metrics_endpoints = {"a": "http://127.0.0.1:9"}\n')
    with pytest.raises(WandbError, match="x_stats"), init_run(current_folder, id="a"):
        pass


def test_a_folder_named_dot_wandb_is_not_used(current_folder: Path, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "debug.log").write_text("precious")
    current_folder.joinpath(".wandb").symlink_to(victim)
    with init_run(current_folder, id="a"):
        pass
    assert [path.read_text() for path in victim.iterdir()] == ["precious"]
    assert any(current_folder.glob("wandb/offline-run-*"))


def test_the_settings_of_wandb_init_are_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def check_server(url: str) -> None:
        settings = f"[default]\nentity = team\nproject = p\nbase_url = {url}\n"
        Path("wandb/settings").write_text(settings)
        check_folder_settings("online")

    check_server(SERVER)
    monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:8")
    check_server("http://127.0.0.1:8")
    monkeypatch.delenv("WANDB_BASE_URL")
    (tmp_path / "user" / "settings").unlink()
    check_server(wandb.Settings().base_url)


def test_nothing_is_written_through_a_symlinked_folder(
    tmp_path: Path, current_folder: Path
) -> None:
    elsewhere = current_folder.joinpath("wandb").rename(tmp_path / "elsewhere")
    current_folder.joinpath("wandb").symlink_to(elsewhere)
    with pytest.raises(RunError, match="symbolic link"), init_run(current_folder, id="a"):
        pass
    assert list(elsewhere.iterdir()) == []
