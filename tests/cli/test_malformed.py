"""200 malformed command lines, configs, checkpoints and data files, made by hypothesis: each gets
one message, no traceback, and leaves no half-written run."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from posenc.cli import main
from posenc.jobs.exit_codes import FINISHED
from posenc.jobs.job import main as job
from posenc.runs.run_directory import RunDirectory
from posenc.training import checkpoint

KEYS = [
    *("train_length", "tokens", "batch_tokens", "seed", "precision", "kernel", "devices", "name"),
    *("encoding", "encoding.spectrum", "encoding/spectrum", "model", "model.heads", "data"),
    *("data.train", "tokenizer", "optimizer", "optimizer.learning_rate", "schedule", "trainer"),
    *("evaluation.lengths", "evaluation.factors", "evaluation.protocols", "evaluation/swap"),
    *("evaluation.swaps", "grids", "sizes", "claims", "about", "modules", "size", "experiment"),
    *("hydra/launcher", "hydra.launcher.jobs", "retry", "logger", "logger.tags", "checkpoint"),
]
VALUES = [
    *("", "-1", "0.5", "nan", "inf", "1e400", "-0", "[]", "{}", "[1,nan]", "{a: 1}", "null"),
    *("true", "../x", "a b", "'", '"', "${x}", "${oc.env:HOME}", "???", "glob(*)x", "range(3)"),
    *("choice()", "interval(0,1)", "[[", "\\", "=", "\x00", "é", "_target_", "1,,2", "x" * 300),
]
WORDS = st.one_of(
    st.tuples(
        st.sampled_from(["", "+", "++", "~"]), st.sampled_from(KEYS), st.sampled_from(VALUES)
    ).map(lambda drawn: f"{drawn[0]}{drawn[1]}={drawn[2]}"),
    st.text(max_size=12),
    st.text(alphabet="=[]{}(),'\"$+~@/.-:ab1 ", min_size=1, max_size=14),
)
FEW = settings(
    max_examples=90,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
Told = Callable[..., int]


@pytest.fixture
def told(capsys: pytest.CaptureFixture[str]) -> Told:
    """Runs a command that must refuse in one message, or, where it `may` be sound, work."""

    def run(words: list[str], may: bool = False) -> int:
        code = main(words)
        printed = capsys.readouterr()
        if may and code == 0:
            return code
        assert code in (1, 2), (words, printed.out)
        assert "Traceback" not in printed.err
        assert printed.err.count(f"posenc {words[0]}: ") == 1, printed.err
        return code

    return run


@pytest.mark.slow
@FEW
@given(drawn=st.lists(WORDS, min_size=1, max_size=3))
def test_malformed_command_lines(
    drawn: list[str], small_job: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A line that happens to be sound prints its configuration; no other may."""
    code = main(["train", "--cfg", *small_job, *drawn])
    printed = capsys.readouterr()
    assert code in (0, 2), printed.err
    assert "Traceback" not in printed.err
    if code == 2:
        assert printed.err.count("posenc train: ") == 1
    assert not (tmp_path / "outputs").exists()


@pytest.fixture
def finished(small_run: Callable[..., RunDirectory]) -> RunDirectory:
    run = small_run("encoding=rope", "tokens=384", "evaluation.factors=[1]")
    assert job([str(run.path)]) == FINISHED
    return run


def damaged(data: bytes, cuts: list[tuple[float, bytes]]) -> bytes:
    for place, piece in cuts:
        at = int(place * len(data))
        data = data[:at] + piece + data[at + max(1, len(piece) * 3) :]
    return data


DAMAGE = st.lists(st.tuples(st.floats(0, 0.99), st.binary(max_size=8)), min_size=1, max_size=4)
LINES = st.sampled_from(
    [
        *("frozen: 3", "encoding: [", "model: null", "train_length: -4", "tokens: a", "seed: null"),
        *(
            "evaluation: {}",
            "data: {_target_: os.system}",
            "logger: []",
            "optimizer: {}",
            "x: !!y z",
        ),
        *("choices: 1", "trainer: {accelerator: tpu}", "about: ${oc.env:HOME}", "precision: [1]"),
        *("kernel: {a: b}", "modules: os", "frozen: {hash: a}", "- a", "\t", "%YAML 9", "{}: {}"),
    ]
)


@pytest.mark.slow
@settings(FEW, max_examples=40)
@given(lines=st.lists(LINES, min_size=1, max_size=2), keep=st.floats(0.0, 1.0))
def test_malformed_configs_of_runs(
    lines: list[str], keep: float, finished: RunDirectory, told: Told
) -> None:
    """Lines in the place of the key that they name, or at the end of the part that is kept."""
    sound = finished.config_file.read_text()
    rows, before = sound.splitlines(), finished.evaluation_file.read_bytes()
    try:
        kept = [row for row in rows[: int(keep * len(rows))] if not row.startswith(" ")]
        finished.config_file.write_text("\n".join([*kept, *lines]) + "\n")
        told(["evaluate", f"run={finished.path}"])
        assert finished.evaluation_file.read_bytes() == before
    finally:
        finished.config_file.write_text(sound)


@pytest.mark.slow
@settings(FEW, max_examples=40)
@given(cuts=DAMAGE)
def test_malformed_checkpoints(
    cuts: list[tuple[float, bytes]], finished: RunDirectory, told: Told, tmp_path: Path
) -> None:
    """Damaged, and named by the digest of what they then hold, so that only loading can tell."""
    sound = finished.path.with_name("sound")
    shutil.copytree(finished.checkpoints, sound)
    before = finished.evaluation_file.read_bytes()
    try:
        newest = checkpoint.list_checkpoints(finished.checkpoints)[0]
        data = damaged(newest.path.read_bytes(), [(place**3, piece) for place, piece in cuts])

        def write(path: Path) -> None:
            path.write_bytes(data)

        checkpoint.save_checkpoint(finished.checkpoints, newest.step, write)
        # A few bytes of weights may be others, which nothing can tell: then it is measured.
        if told(["evaluate", f"run={finished.path}"], may=True) != 0:
            assert finished.evaluation_file.read_bytes() == before
    finally:
        shutil.rmtree(finished.checkpoints)
        sound.rename(finished.checkpoints)
        finished.evaluation_file.write_bytes(before)


@pytest.mark.slow
@settings(FEW, max_examples=30)
@given(
    content=st.one_of(
        st.binary(max_size=40).map(lambda data: data + b"\xff\xfe"),
        st.text("\n \t", max_size=9).map(str.encode),
    ),
    name=st.sampled_from(["a.txt", "a.jsonl", "a.parquet", "a.npy", "a.json"]),
)
def test_malformed_data_files(
    content: bytes, name: str, small_job: list[str], tmp_path: Path, told: Told
) -> None:
    file = tmp_path / name
    file.write_bytes(content)
    told(["train", *small_job, f"data.train={file}"])
    assert not list((tmp_path / "outputs").glob("*/*/config.yaml"))
    file.unlink()
