"""The README's example of a new encoding, copied into an empty folder and run."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from posenc.runs.run_directory import list_runs

README = (Path(__file__).parents[2] / "README.md").read_text()


def code_block(language: str) -> str:
    """Return the first code block of a language in the README."""
    match = re.search(rf"```{language}\n(.*?)```", README, re.DOTALL)
    assert match is not None
    return match[1]


@pytest.mark.slow
def test_the_example_runs_as_written(tmp_path: Path, small_job: list[str]) -> None:
    (tmp_path / "mine.py").write_text(code_block("python"))
    (tmp_path / "my_conf" / "encoding").mkdir(parents=True)
    (tmp_path / "my_conf" / "encoding" / "square_root.yaml").write_text(code_block("yaml"))
    (command,) = re.findall(r"^posenc (train --config-dir .*)$", README, re.MULTILINE)
    words = [*command.split(), *small_job, "train_length=24", "tokens=1920"]
    result = subprocess.run(
        [str(Path(sys.executable).with_name("posenc")), *words],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr
    runs = list_runs(tmp_path / "outputs" / "scratch")
    assert {run.config().encoding.rate for run in runs} == {0.25, 0.5, 1}
    assert all(run.status().state == "finished" for run in runs)
    losses = {row["loss"] for run in runs for row in run.rows() if row["length"] == 24}
    assert len(losses) == 3


def test_every_file_and_page_that_the_readme_links_to_exists() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        if not target.startswith("http"):
            assert (Path(__file__).parents[2] / target).exists(), target
