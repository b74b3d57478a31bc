"""`posenc inspect run=...` end to end, on runs that are trained here."""

import csv
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from posenc.cli.main import main
from posenc.jobs.exit_codes import FINISHED
from posenc.jobs.job import main as job
from posenc.runs.run_directory import RunDirectory
from posenc.sweeps.plan import plan

MODEL = ("width=32", "layers=2", "heads=4", "feed_forward=64")
Rows = list[dict[str, str]]


@pytest.fixture(scope="session")
def trained(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., RunDirectory]:
    """Trains a run of 10 steps at L = 24, evaluated only at L; runs are cached by overrides."""
    outputs = tmp_path_factory.mktemp("inspected") / "outputs"
    splits = [f"data.{split}={corpus}/{split}.txt" for split in ("train", "validation")]
    text = ["data=text", *splits, "tokenizer=byte"]
    runs: dict[tuple[str, ...], RunDirectory] = {}

    def train(*overrides: str) -> RunDirectory:
        if overrides not in runs:
            base = [*(f"model.{value}" for value in MODEL), "train_length=24", "tokens=1920"]
            base += ["batch_tokens=192", "validation.every_tokens=null", "evaluation.factors=[1]"]
            base += ["trainer=cpu", "logger=none", f"outputs_dir={outputs}"]
            has_data = any(override.startswith("data=") for override in overrides)
            job_overrides = [*base, *([] if has_data else text), *overrides]
            run = plan([job_overrides], [], "test", print)[0].run
            assert job([str(run.path)]) == FINISHED, run.status().error
            runs[overrides] = run
        return runs[overrides]

    return train


def rows(run: RunDirectory, table: str) -> Rows:
    with (run.path / "inspect" / f"{table}.csv").open() as file:
        return list(csv.DictReader(file))


def test_inspecting_a_rotary_run_writes_a_page_tables_and_figures(
    trained: Callable[..., RunDirectory], capsys: pytest.CaptureFixture[str]
) -> None:
    run = trained("encoding=rope")
    before = {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()}
    assert main(["inspect", f"run={run.path}", "lengths=[2,40,72]", "windows=3"]) == 0
    printed = capsys.readouterr().out
    assert "Attention by layer" in printed and "Distance between two" in printed
    page = Path(printed.split()[-1])
    assert page == run.path / "inspect" / "index.html"
    text = page.read_text()
    assert run.name in text
    assert text.index("In windows of L = 24 tokens, the mean") < text.index("<section")
    figures = {"attention_by_distance", "attention_by_position", "frequencies"}
    for kind in ("png", "svg", "csv"):
        assert figures <= {path.stem for path in page.parent.glob(f"*.{kind}")}
    assert not (page.parent / "gates.csv").exists() and "No layer has the forget gates" in printed
    assert all(path.read_bytes() == content for path, content in before.items())

    heads = {(int(r["length"]), int(r["layer"]), int(r["head"])): r for r in rows(run, "heads")}
    assert set(heads) == {(t, n, h) for t in (2, 24, 40, 72) for n in range(2) for h in range(4)}
    for (length, layer, head), row in heads.items():
        fractions = [
            (int(r["start"]), int(r["stop"]), float(r["attention"]))
            for r in rows(run, "attention_by_distance")
            if (int(r["length"]), int(r["layer"]), int(r["head"])) == (length, layer, head)
        ]
        assert sum(fraction for *_, fraction in fractions) == pytest.approx(1)
        assert fractions[0][0] == 0 and fractions[-1][1] == length
        beyond = sum(fraction for start, _, fraction in fractions if start >= 24)
        assert float(row["beyond"]) == pytest.approx(beyond)
        assert float(row["self"]) == pytest.approx(fractions[0][2])
    pairs = {(r["length"], r["region"]): int(r["pairs"]) for r in rows(run, "scores")}
    assert pairs == {
        ("2", "within"): 3 * 3,
        ("24", "within"): 3 * 300,
        **{(str(t), "within"): 3 * 300 for t in (40, 72)},
        **{(str(t), "near"): 3 * 24 * (t - 24) for t in (40, 72)},
        **{(str(t), "far"): 3 * (t - 24) * (t - 23) // 2 for t in (40, 72)},
    }
    for name in ("norm", "variation"):
        total = sum(float(row[name]) for row in rows(run, "frequencies"))
        assert total == pytest.approx(4 * 2 * 4)  # 1 for each length, layer and head


def test_a_run_limited_to_the_training_length_is_inspected_only_there(
    trained: Callable[..., RunDirectory], capsys: pytest.CaptureFixture[str]
) -> None:
    run = trained("encoding=learned")
    assert main(["inspect", f"run={run.path}", "windows=2"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "at most 24 positions" in printed and "The sentence has 26 tokens" in printed
    assert {row["length"] for row in rows(run, "heads")} == {"24"}
    changes = [float(r["trained"]) - float(r["initial"]) for r in rows(run, "learned")]
    assert len(changes) == 24 * 32 and max(map(abs, changes)) > 1e-3
    assert [row["vectors"] for row in rows(run, "embeddings")] == [
        "vocabulary",
        "text",
        "positions within L",
    ]
    assert main(["inspect", f"run={run.path}", "lengths=[48]"]) == 2
    assert "at most 24 positions" in capsys.readouterr().err


@pytest.mark.slow
def test_a_task_has_no_sentence_and_fox_has_forget_gates(
    trained: Callable[..., RunDirectory], capsys: pytest.CaptureFixture[str]
) -> None:
    run = trained("encoding=fox", "data=task_copy", "data.examples=4")
    assert main(["inspect", f"run={run.path}", "windows=2", "lengths=[30]"]) == 0
    assert "symbols of a task" in capsys.readouterr().out
    gates = rows(run, "gates")
    assert gates and all(float(row["mean_log"]) < 0 for row in gates)
    at_query = [row for row in rows(run, "attention_by_distance") if row["start"] == "0"]
    assert at_query
    assert all(float(row["bias"]) == pytest.approx(0, abs=1e-5) for row in at_query)
    assert (run.path / "inspect" / "bias_by_distance.svg").is_file()


@pytest.mark.slow
def test_an_inspection_is_logged_as_a_separate_run(trained: Callable[..., RunDirectory]) -> None:
    run = trained("encoding=nope")
    assert main(["inspect", f"run={run.path}", "windows=2", "logger=wandb"]) == 0
    (offline_run,) = (run.path.parent / "wandb").glob("offline-run-*")
    assert offline_run.name.endswith(f"{run.name}-inspect")
    shutil.rmtree(run.path / "inspect")


def test_an_invalid_command_gives_one_message_and_writes_nothing(
    trained: Callable[..., RunDirectory], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = trained("encoding=nope")
    for overrides, message in (
        ([f"run={tmp_path}/nothing"], "no run in outputs has this prefix"),
        ([f"run={run.path}", "encoding=rope"], "encoding=rope cannot be combined with run=PATH"),
        ([f"run={run.path}", "lengths=[1]"], "lengths=[1]"),
        ([f"run={run.path}", "lengths=[9000]"], "9000"),
        ([f"run={run.path}", "windows=0"], "windows=0"),
        ([f"run={run.path}", "windows=many"], "windows='many'"),
        ([f"run={run.path}", "sentence=abc"], "no token occurs twice"),
        ([f"run={run.path}", "windows=1,2"], "a single value"),
        (["encoding=rope", "windows=4"], "run=PATH"),
    ):
        assert main(["inspect", *overrides]) == 2, overrides
        assert message in " ".join(capsys.readouterr().err.split()), overrides
    assert not (run.path / "inspect").exists()


def test_an_untrained_run_is_an_error(
    small_run: Callable[..., RunDirectory], capsys: pytest.CaptureFixture[str]
) -> None:
    run = small_run("encoding=nope")
    assert main(["inspect", f"run={run.path}"]) == 1
    assert "training" in " ".join(capsys.readouterr().err.split())
    assert not (run.path / "inspect").exists()
