"""Files of a run are data: they are validated, and nothing in them is executed."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from omegaconf import OmegaConf

from posenc.api.saved_run import run_config, training_data
from posenc.cli import main
from posenc.config.component_types import import_target
from posenc.config.components import check
from posenc.config.errors import ConfigError, RunError
from posenc.evaluation import evaluate
from posenc.inspect.inspection import InspectionResults, write_inspection
from posenc.jobs.exit_codes import FAILED, FINISHED
from posenc.jobs.job import main as job
from posenc.runs.run_directory import RunDirectory
from posenc.tracking.upload import find_tracker
from posenc.tracking.wandb_tracker import WandbTracker

SmallRun = Callable[..., RunDirectory]
EvaluationError = Callable[..., str]
MALICIOUS = {"_target_": "malicious.run"}


@pytest.fixture
def finished(small_run: SmallRun) -> RunDirectory:
    run = small_run("encoding=rope")
    assert job([str(run.path)]) == FINISHED
    return run


@pytest.fixture
def evaluation_error(capsys: pytest.CaptureFixture[str]) -> EvaluationError:
    """Runs `posenc evaluate`, which must fail, and returns its error message."""

    def evaluate(run: RunDirectory, *words: str) -> str:
        assert main(["evaluate", f"run={run.path}", *words]) in (1, 2)
        return capsys.readouterr().err

    return evaluate


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("encoding._target_", "malicious.run"),
        ("encoding.spectrum._target_", "malicious.run"),
        ("encoding._args_", [MALICIOUS]),
        ("encoding.spectrum._args_", [MALICIOUS]),
        ("encoding.layout", MALICIOUS),
        ("logger", {"_target_": "posenc.tracking.tracker.NullTracker", "_args_": [MALICIOUS]}),
        (
            "logger",
            {"_target_": "posenc.tracking.wandb_tracker.WandbTracker", "tags": ["a", MALICIOUS]},
        ),
        ("model.width", {"a": [MALICIOUS]}),
        ("data._target_", "os.system"),
    ],
)
def test_a_malicious_config_runs_no_code(
    finished: RunDirectory,
    evaluation_error: EvaluationError,
    key: str,
    value: object,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "malicious.py").write_text("raise SystemExit('code was run')\n")
    monkeypatch.chdir(tmp_path)
    config = OmegaConf.load(finished.config_file)
    OmegaConf.update(config, key, value, merge=False)
    finished.config_file.write_text(OmegaConf.to_yaml(config))
    before = finished.evaluation_file.read_text()
    message = evaluation_error(finished)
    assert "outside posenc" in message or "_args_ is not supported" in message
    assert "malicious" not in sys.modules
    assert finished.evaluation_file.read_text() == before


def test_a_config_folder_of_a_run_cannot_trust_modules(
    finished: RunDirectory,
    evaluation_error: EvaluationError,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As in `--config-dir RUN/longrope`, which docs/evaluation.md recommends."""
    (tmp_path / "malicious.py").write_text("raise SystemExit('code was run')\n")
    monkeypatch.chdir(tmp_path)
    config = OmegaConf.load(finished.config_file)
    OmegaConf.update(config, "encoding._target_", "malicious.Encoding", merge=False)
    finished.config_file.write_text(OmegaConf.to_yaml(config))
    swap = tmp_path / "conf" / "evaluation" / "swap" / "factors.yaml"
    swap.parent.mkdir(parents=True)
    swap.write_text("# @package _global_\nmodules: [malicious]\n")
    words = ["--config-dir", "conf", "evaluation/swap=factors"]
    assert "modules=[malicious]" in evaluation_error(finished, *words)
    assert "malicious" not in sys.modules


def test_a_config_folder_of_a_run_cannot_choose_the_text_that_is_evaluated(
    finished: RunDirectory, tmp_path: Path
) -> None:
    swap = tmp_path / "conf" / "evaluation" / "swap" / "factors.yaml"
    swap.parent.mkdir(parents=True)
    (tmp_path / "private.txt").write_text("private text " * 500)
    swap.write_text(
        "# @package _global_\n"
        f"data: {{_target_: posenc.data.text.text, train: {tmp_path}/private.txt}}\n"
        "evaluation: {swap: {_target_: posenc.encodings.spectra.yarn, factor: 2}}\n"
    )
    words = [f"run={finished.path}", "--config-dir", str(tmp_path / "conf")]
    assert main(["evaluate", *words, "evaluation/swap=factors"]) == 0
    assert {row["data"] for row in finished.rows()} == {finished.config().planned.fingerprint}


def test_the_message_for_an_encoding_in_the_current_folder_has_the_command_that_trusts_it(
    finished: RunDirectory,
    evaluation_error: EvaluationError,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    config = OmegaConf.load(finished.config_file)
    OmegaConf.update(config, "encoding._target_", "mine.Mine", merge=False)
    finished.config_file.write_text(OmegaConf.to_yaml(config))
    assert "posenc evaluate" not in evaluation_error(finished).partition(":")[2]
    (tmp_path / "mine.py").write_text("raise SystemExit('code was run')\n")
    message = evaluation_error(finished)
    assert f"posenc evaluate run={finished.path}" in message and "modules=[mine]" in message


@pytest.mark.slow
@pytest.mark.parametrize("elsewhere", [False, True])
def test_only_the_code_that_was_used_in_training_is_imported(
    elsewhere: bool,
    small_job: list[str],
    evaluation_error: EvaluationError,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source = (
        "from posenc.encodings.base import Encoding\n\n\n"
        "class Half(Encoding):\n"
        "    def bias(self, head, distance, pos_q):\n"
        "        return -0.5 * distance\n\n\n"
        "class Other(Half):\n"
        "    pass\n"
    )
    for folder in ("here", "there"):
        (tmp_path / folder / "conf" / "encoding").mkdir(parents=True)
        (tmp_path / folder / "trained_with.py").write_text(source)
    monkeypatch.setattr(sys, "path", list(sys.path))  # commands add the current directory
    monkeypatch.chdir(tmp_path / "here")
    Path("conf/encoding/half.yaml").write_text("_target_: trained_with.Half\n")
    assert main(["train", "--config-dir", "conf", "encoding=half", *small_job]) == 0
    (run,) = [RunDirectory(file.parent) for file in tmp_path.glob("outputs/*/*/config.yaml")]
    monkeypatch.delitem(sys.modules, "trained_with")
    sys.path[:] = [path for path in sys.path if path != str(tmp_path / "here")]
    if elsewhere:
        monkeypatch.chdir(tmp_path / "there")
        assert "modules=[trained_with]" in evaluation_error(run)
        assert "trained_with" not in sys.modules
    else:
        assert main(["evaluate", f"run={run.path}", "evaluation.lengths=[30]"]) == 0
        swap = tmp_path / "foreign" / "evaluation" / "swap" / "mine.yaml"
        swap.parent.mkdir(parents=True)
        swap.write_text(
            "# @package _global_\n"
            "evaluation:\n"
            "  swap:\n"
            "    _target_: posenc.encodings.window.Window\n"
            "    _partial_: true\n    size: {_target_: trained_with.print_secret}\n"
        )
        words = ["--config-dir", str(tmp_path / "foreign"), "evaluation/swap=mine"]
        message = evaluation_error(run, *words)
        assert "trained_with.print_secret is outside posenc" in message
        del sys.modules["trained_with"]
        text = run.config_file.read_text()
        run.config_file.write_text(text.replace("trained_with.Half", "trained_with.Other"))
        assert "modules=[trained_with]" in evaluation_error(run)
        assert "trained_with" not in sys.modules
    sys.modules.pop("trained_with", None)


def test_a_malicious_target_is_imported_neither_by_a_job_nor_by_planning(
    small_run: SmallRun,
    small_job: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run = small_run()
    (tmp_path / "malicious.py").write_text("raise SystemExit('code was run')\n")
    monkeypatch.syspath_prepend(tmp_path)
    config = OmegaConf.load(run.config_file)
    config.encoding = MALICIOUS
    run.config_file.write_text(OmegaConf.to_yaml(config))
    assert job([str(run.path)]) == FAILED
    assert "outside posenc" in str(run.status().error)
    assert main(["train", *small_job]) == 2
    assert "outside posenc" in capsys.readouterr().err
    assert "malicious" not in sys.modules


def test_a_saved_configuration_cannot_trust_modules(
    small_run: SmallRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = small_run()
    (tmp_path / "malicious.py").write_text("raise SystemExit('code was run')\n")
    monkeypatch.syspath_prepend(tmp_path)
    config = OmegaConf.load(run.config_file)
    config.logger, config.modules = MALICIOUS, ["malicious"]
    run.config_file.write_text(OmegaConf.to_yaml(config))
    assert run.config().modules == []
    assert isinstance(find_tracker(run), WandbTracker)
    assert "malicious" not in sys.modules


@pytest.mark.parametrize("logger", [["logger=wandb"], ["logger=[wandb,csv]"]])
def test_a_run_is_uploaded_only_to_an_entity_to_which_the_user_has_logged_runs(
    logger: list[str], small_run: SmallRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = small_run(*logger, "logger.mode=online", "logger.entity=lab")
    config = run_config(run, [], str)
    assert (config.logger.mode, config.logger.entity) == ("online", "lab")
    assert find_tracker(run).entity == "lab"
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "someone else"))
    config = run_config(run, [], str)
    assert (config.logger.mode, config.logger.entity) == (None, None)
    with pytest.raises(RunError, match="set WANDB_ENTITY="):
        find_tracker(run)
    assert find_tracker(run, offline=True).entity == "lab"
    monkeypatch.setenv("WANDB_ENTITY", "lab")
    assert find_tracker(run).entity == "lab"


def test_an_unfinished_run_cannot_be_evaluated(
    small_run: SmallRun, evaluation_error: EvaluationError
) -> None:
    run = small_run()
    assert "no checkpoint" in evaluation_error(run)
    assert run.rows() == []


def test_an_edited_configuration_is_neither_evaluated_nor_inspected(
    finished: RunDirectory, evaluation_error: EvaluationError, capsys: pytest.CaptureFixture[str]
) -> None:
    config = OmegaConf.load(finished.config_file)
    config.encoding.spectrum.base = 500
    finished.config_file.write_text(OmegaConf.to_yaml(config))
    before = finished.evaluation_file.read_text()
    assert "edited since" in evaluation_error(finished)
    assert main(["inspect", f"run={finished.path}"]) == 1
    assert "edited since" in capsys.readouterr().err
    assert finished.evaluation_file.read_text() == before


def test_a_corpus_that_has_changed_since_training_is_an_error(
    finished: RunDirectory, evaluation_error: EvaluationError, tmp_path: Path
) -> None:
    config = OmegaConf.load(finished.config_file)
    shorter = tmp_path / "shorter.txt"
    shorter.write_text(Path(config.data.train).read_text()[:5000])
    config.data.train = str(shorter)
    config.cache_dir = str(tmp_path / "cache")
    finished.config_file.write_text(OmegaConf.to_yaml(config))
    before = set(tmp_path.rglob("*"))
    assert "has changed since the run was trained" in evaluation_error(finished)
    assert set(tmp_path.rglob("*")) == before  # nothing was tokenized


def test_a_tokenizer_that_differs_from_that_of_training_is_an_error(
    finished: RunDirectory,
) -> None:
    """Another version of `tokenizers` may train a different one on the same text."""
    config = finished.config()
    assert training_data(config, "", print).fingerprint == config.planned.fingerprint
    config.planned.tokenizer = "0" * 64
    with pytest.raises(ConfigError, match="training the tokenizer on the same text again"):
        training_data(config, "", print)


@pytest.mark.parametrize("module", ["build_tracker", "upload"])
def test_a_tracker_cannot_be_named_through_a_module_that_imports_it(module: str) -> None:
    target = f"posenc.tracking.{module}.WandbTracker"
    logger = OmegaConf.create({"_target_": target, "mode": "online", "entity": "someone"})
    with pytest.raises(ConfigError, match="cannot be used for logger"):
        check(logger, name="logger")


@pytest.mark.parametrize("text", ["", "a: [", "- a\n- b\n", "encoding: 3\n"])
def test_a_corrupt_config_is_named(
    finished: RunDirectory, evaluation_error: EvaluationError, text: str
) -> None:
    finished.config_file.write_text(text)
    message = evaluation_error(finished)
    assert "config.yaml" in message and "Traceback" not in message


def test_a_corrupt_plan_is_named(
    finished: RunDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    (finished.path.parent / "plan.json").write_text("{")
    assert main(["report", f"outputs_dir={finished.path.parents[1]}", "name=scratch"]) == 1
    assert "plan.json is corrupt" in capsys.readouterr().err


def test_a_corpus_with_a_single_split_is_evaluated_on_that_split(
    finished: RunDirectory, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "other.txt").write_text("a few words, then no more\n" * 40)
    words = ["data=text", f"data.test={tmp_path}/other.txt", "evaluation.lengths=[30]"]
    assert main(["evaluate", f"run={finished.path}", *words]) == 0
    (row, _) = [row for row in finished.rows() if row["length"] == 30]
    assert row["split"] == "test"
    assert row["count"] == row["bytes"] + 1
    assert "(test)" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("a: !!pairs [x: '${oc.env:HOME}']", "contains the tag"),
        ("a: !!set {b}", "contains the tag"),
        ("a: !!python/name:os.system ''", "contains the tag"),
        ("null: 1", "a key is null"),
    ],
)
def test_a_config_with_tags_or_null_keys_is_refused(
    finished: RunDirectory, evaluation_error: EvaluationError, line: str, reason: str
) -> None:
    with finished.config_file.open("a") as file:
        file.write(f"{line}\n")
    message = evaluation_error(finished)
    assert "config.yaml" in message and reason in message


@pytest.mark.parametrize("name", ["run.log", ".lock", ".evaluation.json.lock", "metrics.jsonl"])
@pytest.mark.parametrize("command", ["evaluate", "train"])
def test_nothing_is_written_through_a_symbolic_link(
    small_run: SmallRun,
    small_job: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    name: str,
    command: str,
) -> None:
    run = small_run()
    if command == "evaluate":
        assert job([str(run.path)]) == FINISHED
    target = tmp_path / "target"
    target.write_text("mine\n")
    (run.path / name).unlink(missing_ok=True)
    (run.path / name).symlink_to(target)
    words = [f"run={run.path}"] if command == "evaluate" else small_job
    assert main([command, *words]) in (1, 2)
    assert "symbolic link" in capsys.readouterr().err
    assert target.read_text() == "mine\n"


def test_an_inspection_is_not_written_to_a_folder_behind_a_link(tmp_path: Path) -> None:
    """Writing it would remove the files of an earlier inspection from that folder."""
    documents = tmp_path / "documents"
    documents.mkdir()
    (documents / "mine.csv").write_text("")
    (tmp_path / "outputs" / "scratch").mkdir(parents=True)
    (tmp_path / "outputs" / "scratch" / "inspect").symlink_to(documents)
    results = InspectionResults("title", "question", {}, [], [])
    with pytest.raises(RunError, match="is a symbolic link"):
        write_inspection(tmp_path / "outputs" / "scratch" / "inspect", results, "posenc inspect")
    assert [file.name for file in documents.iterdir()] == ["mine.csv"]


def test_a_command_writes_only_to_a_cache_that_the_user_chose_and_that_has_the_corpus_of_the_run(
    small_run: SmallRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = small_run(f"cache_dir={tmp_path}/cache")
    assert run_config(run, [], str).cache_dir == f"{tmp_path}/cache"
    (tmp_path / "documents").mkdir()
    text = run.config_file.read_text()
    run.config_file.write_text(text.replace(f"{tmp_path}/cache", f"{tmp_path}/documents"))
    assert run_config(run, [], str).cache_dir == str(run.path.parents[1] / ".data")
    run.config_file.write_text(text)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state of someone else"))
    assert run_config(run, [], str).cache_dir == str(run.path.parents[1] / ".data")
    fingerprint = run.config().planned.fingerprint
    run.config_file.write_text(text.replace(f"fingerprint: {fingerprint}", "fingerprint: ../x"))
    with pytest.raises(RunError, match="fingerprint"):
        run.config()


def test_a_model_that_does_not_fit_its_checkpoint_is_not_built(
    finished: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A configuration from someone else could describe a model that fills the memory."""
    config = run_config(finished, [], str)
    config.model.feed_forward = 100_000_000
    monkeypatch.setattr(evaluate, "build_model", lambda *_: pytest.fail("the model was built"))
    with pytest.raises(RunError, match="does not fit the model"):
        evaluate.load_model(finished, config, 257, torch.device("cpu"))


def test_a_slurm_job_loads_no_checkpoint_from_the_current_folder(
    small_run: SmallRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a Slurm job, Lightning looks for `hpc_ckpt_*.ckpt` in its root folder."""
    (tmp_path / "hpc_ckpt_1.ckpt").write_bytes(b"not a checkpoint")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SLURM_NTASKS", "1")
    monkeypatch.setenv("SLURM_JOB_NAME", "train")
    run = small_run("encoding=rope")
    assert job([str(run.path)]) == FINISHED


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["pool", "submitit_local"])
def test_training_imports_nothing_from_the_current_folder(
    small_job: list[str], tmp_path: Path, launcher: str
) -> None:
    """Even though Python's fork server and submitit start Python with -c or -m."""
    if launcher != "pool":
        pytest.importorskip("submitit")
    folder = tmp_path / "downloaded"
    folder.mkdir()
    for name in ("multiprocessing", "contextlib", "subprocess", "tempfile", "omegaconf", "numpy"):
        (folder / f"{name}.py").write_text("open('code was run', 'w')\n")
    words = ["train", *small_job, f"hydra/launcher={launcher}", f"outputs_dir={tmp_path / 'o'}"]
    command = [sys.executable, "-P", "-m", "posenc", *words]
    environment = {**os.environ, "RANK": "not a number"}  # from a program that is not torchrun
    result = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert not (folder / "code was run").exists()


def test_a_trusted_module_elsewhere_does_not_make_the_current_folder_importable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed, downloaded = tmp_path / "installed", tmp_path / "downloaded"
    installed.mkdir()
    downloaded.mkdir()
    code = "from posenc.encodings.base import Encoding\n\nclass Mine(Encoding):\n    pass\n"
    (installed / "installed_mine.py").write_text(code)
    for name in ("tabulate", "torchdistx", "gmpy2"):  # optional packages of libraries
        (downloaded / f"{name}.py").write_text("open('code was run', 'w')\n")
    monkeypatch.setattr(sys, "path", [*sys.path, str(installed)])
    monkeypatch.chdir(downloaded)
    node = {"_target_": "installed_mine.Mine"}
    assert import_target(node, "encoding", ["installed_mine"]).__name__ == "Mine"
    assert str(downloaded) not in sys.path
    (downloaded / "mine_here.py").write_text(code)
    import_target({"_target_": "mine_here.Mine"}, "encoding", ["mine_here"])
    assert str(downloaded) in sys.path


@pytest.mark.slow
def test_nothing_in_the_current_folder_is_imported_unless_it_is_named(tmp_path: Path) -> None:
    for name in ("hydra_plugins/evil/__init__", "org", "msvcrt", "gmpy2"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / f"{name}.py").write_text("open('code was run', 'w')\n")
    for words in (["train", "encoding=nope", "--cfg"], ["status"], ["list", "encoding"]):
        # -P keeps the current directory off sys.path, as for the script `posenc`.
        command = [sys.executable, "-P", "-m", "posenc", *words]
        result = subprocess.run(command, cwd=tmp_path, capture_output=True, timeout=60)
        assert result.returncode in (0, 2), result.stderr  # 2: status finds no experiment
    assert not (tmp_path / "code was run").exists()
