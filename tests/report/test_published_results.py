"""The reports in `docs/results/` match the runs that are published with them."""

import csv
import io
import json
import shutil
from pathlib import Path

import pytest
import yaml
from rich.console import Console

from posenc.report.write_report import write_report

RESULTS = Path(__file__).parents[2] / "docs" / "results"
FOLDERS = sorted(file.parent for file in RESULTS.glob("runs/*/plan.json"))
TABLES = ("claims.csv", "extrapolation.csv", "accuracy.csv", "runs.csv", "ngrams.csv")


def rows(text: str) -> list[dict[str, str | float]]:
    """Return the rows of a CSV file, with numbers as floats."""
    return [
        {key: number(value) for key, value in row.items()}
        for row in csv.DictReader(io.StringIO(text))
    ]


def number(text: str) -> str | float:
    try:
        return float(text)
    except ValueError:
        return text


@pytest.mark.slow
@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_a_published_report_can_be_reproduced_from_the_published_runs(
    folder: Path, tmp_path: Path
) -> None:
    runs = Path(shutil.copytree(folder, tmp_path / folder.name))
    index = write_report(runs, Console(file=io.StringIO()))
    published = RESULTS / folder.name.removesuffix("-laptop")
    written = [table for table in TABLES if (index.parent / table).exists()]
    assert written == [table for table in TABLES if (published / table).exists()]
    for table in written:
        actual = rows((index.parent / table).read_text())
        expected = rows((published / table).read_text())
        assert len(actual) == len(expected), table
        for row, expected_row in zip(actual, expected, strict=True):
            assert row.keys() == expected_row.keys(), table
            for key, value in expected_row.items():
                same = value if isinstance(value, str) else pytest.approx(value, rel=1e-4)
                assert row[key] == same, (table, key)


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_a_published_report_has_the_texts_and_claims_of_its_experiment(folder: Path) -> None:
    name = folder.name.removesuffix("-laptop")
    text = (RESULTS.parents[1] / f"conf/experiment/{name}.yaml").read_text()
    experiment = json.loads(json.dumps(yaml.safe_load(text)))  # with strings as keys
    plan = json.loads((folder / "plan.json").read_text())
    for key in ("about", "premises", "claims", "published"):
        assert plan.get(key) == experiment.get(key), key


@pytest.mark.slow
def test_published_runs_contain_no_home_directory_of_the_machine_that_trained_them() -> None:
    files = [*RESULTS.glob("runs/*/plan.json"), *RESULTS.glob("runs/*/*/*.*")]
    text = "".join(file.read_text() for file in files if file.suffix in (".json", ".yaml"))
    assert not [word for word in text.split() if word.strip('"').startswith(("/root", "/home"))]
