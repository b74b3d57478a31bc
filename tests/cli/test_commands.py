"""The commands end to end, as installed."""

import json
import os
import shlex
import subprocess
import sys
import venv
import zipfile
from pathlib import Path
from typing import Any

import pytest

from posenc.data.packages import required_packages
from posenc.runs.run_directory import list_runs

POSENC = str(Path(sys.executable).with_name("posenc"))


def posenc(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([POSENC, *words], cwd=cwd, capture_output=True, text=True)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "stream", "code"),
    [
        (["list"], "stdout", 141),
        (["help"], "stdout", 141),
        (["--version"], "stdout", 141),
        (["train", "name=one"], "stderr", 141),
        (["train", "encoding=rpoe"], "stderr", 2),
    ],
)
def test_a_command_whose_output_is_closed_does_not_succeed(
    words: list[str], stream: str, code: int, small_job: list[str], tmp_path: Path
) -> None:
    overrides = small_job if words[0] == "train" else []
    read, write = os.pipe()
    os.close(read)
    streams: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, stream: write}
    result = subprocess.run([POSENC, words[0], *overrides, *words[1:]], cwd=tmp_path, **streams)
    os.close(write)
    assert result.returncode == code
    assert b"Traceback" not in (result.stderr or b"")


@pytest.mark.parametrize("word", ["list", "--version"])
def test_a_command_succeeds_if_its_output_was_closed_before_it_started(
    word: str, tmp_path: Path
) -> None:
    command = f"{shlex.quote(str(POSENC))} {word} >&-"
    result = subprocess.run(["bash", "-c", command], cwd=tmp_path, stderr=subprocess.PIPE)
    assert (result.returncode, result.stderr) == (0, b"")


def test_a_file_size_limit_is_an_error(tmp_path: Path) -> None:
    command = f"ulimit -f 0; trap '' XFSZ; {shlex.quote(str(POSENC))} list > list.txt"
    result = subprocess.run(["bash", "-c", command], cwd=tmp_path, stderr=subprocess.PIPE)
    assert result.returncode == 1 and b"ulimit" in result.stderr


@pytest.mark.slow
def test_a_sweep_can_be_trained_evaluated_and_reported(
    tmp_path: Path, small_job: list[str]
) -> None:
    train = ["train", *small_job, "encoding=alibi,nope", "logger=wandb", "name=both"]
    first = posenc(*train, cwd=tmp_path)
    assert first.returncode == 0, first.stderr
    runs = list_runs(tmp_path / "outputs" / "both")
    assert [run.name.split("-")[0] for run in runs] == ["alibi", "nope"]
    assert len(list((tmp_path / "outputs" / "both" / "wandb").glob("run-*"))) == 2

    metrics = [run.metrics_file.read_text() for run in runs]
    before = [run.status_file.read_text() for run in runs]
    repeated = posenc(*train, cwd=tmp_path)
    assert repeated.returncode == 0
    assert [run.status_file.read_text() for run in runs] == before

    states = json.loads(posenc("status", "name=both", "--json", cwd=tmp_path).stdout)
    assert [entry["state"] for entry in states] == ["finished", "finished"]
    assert "finished" in posenc("status", "name=both", cwd=tmp_path).stdout

    evaluate = posenc("evaluate", f"run={runs[0].path}", "evaluation.lengths=[48]", cwd=tmp_path)
    assert evaluate.returncode == 0, evaluate.stderr
    assert sorted({row["length"] for row in runs[0].rows()}) == [24, 48, 96]
    assert [run.metrics_file.read_text() for run in runs] == metrics

    report = posenc("report", "name=both", cwd=tmp_path)
    assert report.returncode == 0, report.stderr
    page = tmp_path / report.stdout.strip().splitlines()[-1]
    assert page.name == "index.html" and page.is_file()


@pytest.mark.slow
def test_a_failed_run_does_not_stop_other_runs_and_is_rerun_with_retry(
    tmp_path: Path, small_job: list[str]
) -> None:
    rates = "optimizer.learning_rate=1e-3,1e30"
    train = ["train", *small_job, rates, "gradient_clip=null", "evaluation.factors=[1]"]
    assert posenc(*train, cwd=tmp_path).returncode == 1
    statuses = {
        r.config().optimizer.learning_rate: r.status()
        for r in list_runs(tmp_path / "outputs" / "scratch")
    }
    assert statuses[0.001].state == "finished"
    failed = statuses[max(statuses)]
    assert failed.state == "failed" and "not finite" in str(failed.error)
    assert starts(tmp_path) == {"finished": 1, "failed": 1}
    posenc(*train, cwd=tmp_path)
    assert starts(tmp_path) == {"finished": 1, "failed": 1}
    retried = posenc(*train, "retry=true", cwd=tmp_path)
    assert retried.returncode == 1 and "not finite" in retried.stderr
    assert starts(tmp_path) == {"finished": 1, "failed": 2}


def starts(folder: Path) -> dict[str, int]:
    """Map the state of each run to the number of times its job was started."""
    runs = list_runs(folder / "outputs" / "scratch")
    return {run.status().state: run.log_file.read_text().count("INFO posenc 0") for run in runs}


@pytest.mark.slow
def test_cfg_prints_the_configuration_of_every_job_and_starts_none(tmp_path: Path) -> None:
    result = posenc("train", "--cfg", "encoding=alibi,rope", "seed=1,2", cwd=tmp_path)
    assert result.returncode == 0
    assert result.stdout.count("train_length: 256") == 4
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_an_installed_wheel_trains_without_the_checkout(
    tmp_path: Path, small_job: list[str]
) -> None:
    root = Path(__file__).parents[2]
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(tmp_path), str(root)],
        check=True,
    )
    (wheel,) = tmp_path.glob("posenc-*.whl")
    site, empty = tmp_path / "site", tmp_path / "empty"
    empty.mkdir()
    zipfile.ZipFile(wheel).extractall(site)
    code = (
        f"import sys; sys.path.insert(0, {str(site)!r}); import posenc.cli as c; sys.exit(c.main())"
    )
    result = subprocess.run(
        [sys.executable, "-c", code, "train", *small_job, "encoding=alibi"],
        cwd=empty,
        env={"PYTHONPATH": str(site), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr
    assert (site / "posenc" / "conf" / "train.yaml").is_file()
    listing = subprocess.run(
        [sys.executable, "-c", code, "list", "encoding"],
        cwd=empty,
        env={"PYTHONPATH": str(site)},
        capture_output=True,
        text=True,
    )
    assert "alibi" in listing.stdout


def create_environment(folder: Path, links: Path) -> None:
    """Create a virtual environment with the packages that posenc requires, and no others.

    The packages are symbolic links to those installed here. The links are in a folder outside the
    environment, where pip changes nothing. Installing copies would take minutes, and
    scripts/test.sh does that already.
    """
    venv.create(folder, with_pip=True)
    (site,) = folder.glob("lib/python*/site-packages")
    (site / "links.pth").write_text(f"{links}\n")
    links.mkdir()
    for package in required_packages("posenc").values():
        for name in {file.parts[0] for file in package.files or []} - {"..", "__pycache__"}:
            if not (links / name).exists():
                (links / name).symlink_to(Path(str(package.locate_file(name))))


@pytest.mark.slow
def test_the_quickstart_script_runs_in_a_fresh_copy(tmp_path: Path) -> None:
    """With few tokens; the last line of the output is the path of the report."""
    few = ["tokens=2e4", "evaluation.budget_tokens=5e3", "validation.tokens=5e3", "logger=none"]
    root = Path(__file__).parents[2]
    files = subprocess.run(
        ["git", "ls-files", "-z", ":!docs/results"],
        cwd=root,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split("\0")
    for name in filter(None, files):
        copy = tmp_path / "copy" / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes((root / name).read_bytes())
        copy.chmod((root / name).stat().st_mode)
    create_environment(tmp_path / "copy" / ".venv", tmp_path / "links")
    result = subprocess.run(
        ["scripts/quickstart.sh", *few],
        cwd=tmp_path / "copy",
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr
    assert "installing posenc" in result.stdout
    page = tmp_path / "copy" / result.stdout.strip().splitlines()[-1]
    assert page.name == "index.html" and page.is_file()
    for name in ("sinusoidal", "rope", "alibi", "nope"):
        assert name in result.stdout
