"""The notebook and the examples in docs/python.md run as written; the docs site builds."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.slow
def test_the_examples_in_python_md_run_as_a_script(tmp_path: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (DOCS / "python.md").read_text(), re.DOTALL)
    checks = """
assert text.startswith("def ") and len(log_probabilities) == 32
assert {row["swap"] for row in rows} == {"yarn"} and set(frame.encoding) == {"rope", "alibi"}
"""
    (tmp_path / "example.py").write_text("".join([*blocks, checks]))
    result = subprocess.run(
        [sys.executable, "-W", "error", "example.py"], cwd=tmp_path, capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr
    assert (result.stdout, result.stderr) == ("", "")


@pytest.mark.slow
def test_the_notebook_runs(tmp_path: Path) -> None:
    nbclient, nbformat = (pytest.importorskip(name) for name in ("nbclient", "nbformat"))
    notebook = nbformat.read(DOCS / "notebook.ipynb", as_version=4)
    resources = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(notebook, timeout=300, resources=resources).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert [output for output in outputs if output.output_type == "error"] == []
    assert all(output.get("name") != "stderr" for output in outputs)
    assert "LayerChart" in outputs[-1].data["text/plain"]


def test_the_notebook_is_saved_without_outputs() -> None:
    text = (DOCS / "notebook.ipynb").read_text()
    assert '"execution_count": null' in text and '"output_type"' not in text


@pytest.mark.slow
def test_the_documentation_site_builds_without_warnings(tmp_path: Path) -> None:
    pytest.importorskip("mkdocstrings")
    result = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)],
        cwd=DOCS.parent,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},  # mkdocs-material's notice about MkDocs 2
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr
    reference = (tmp_path / "reference" / "index.html").read_text()
    assert "log-probability of each token" in reference
