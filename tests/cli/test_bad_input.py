"""Bad input gets one message with value, limit and remedy, exit code 2, and nothing is written."""

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from posenc.cli import main
from posenc.cli.arguments import parse
from posenc.runs.run_directory import RunDirectory

ErrorOf = Callable[..., str]


@pytest.fixture
def error_of(
    small_job: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> ErrorOf:
    """Runs `posenc train` with a mistake and returns its error message."""
    monkeypatch.chdir(tmp_path)

    def run(*overrides: str) -> str:
        code = main(["train", *small_job, *overrides])
        error = capsys.readouterr().err
        assert code == 2, error
        assert "Traceback" not in error
        message = error[error.index("posenc train: ") :]
        runs = list((tmp_path / "outputs").glob("*/*/config.yaml"))
        assert not runs, f"{runs} written"
        return message

    return run


@pytest.mark.parametrize(
    ("overrides", "parts"),
    [
        (["encoding=alibbi"], ["encoding=alibbi", "alibi", "rope"]),
        (["encodng=alibi"], ["encodng", "did you mean encoding"]),
        (["encoding=nan"], ["Hydra reads as a number"]),
        (
            ["optimizer=adamw", "optimizer.foreach=true"],
            ["+optimizer.foreach=...", "YAML file omits"],
        ),
        (["callbacks.early_stopping.patience=3"], ["add callbacks=early_stopping"]),
        (["optimizer={_target_:torch.optim.RAdam}"], ["DIR/optimizer/NAME.yaml"]),
        (["train_length=long"], ["train_length='long'", "integer"]),
        (["model.heads=5"], ["heads=5 does not divide width=32"]),
        (["model.heads=32", "encoding=rope"], ["even number of channels", "model.heads"]),
        (["encoding=learned"], ["evaluation length 96", "24 positions", "encoding.max_length=96"]),
        (["encoding=xpos", "encoding.scale_base=0.5"], ["shorter evaluation lengths"]),
        (
            ["encoding=randomized", "encoding.max_length=24"],
            ["24 positions", "encoding.max_length=96"],
        ),
        (["encoding=fire", "encoding.mlp_width=0"], ["mlp_width=0"]),
        (["encoding=rope", "encoding/spectrum=ntk", "encoding.spectrum.factor=1e300"], ["1000000"]),
        (["encoding=fire", "kernel=toeplitz"], ["kernel=toeplitz", "Fire", "distance"]),
        (["encoding=t5", "kernel=factored"], ["kernel=factored", "T5", "does not factorize"]),
        (
            ["encoding=alibi", "kernel=key_bias", "precision=bf16", "evaluation.factors=[4000]"],
            ["kernel=key_bias", "bias exceeds 16,384"],
        ),
        (["trainer=gpu"], ["trainer=gpu", "trainer=cpu"]),
        (["devices=3"], ["devices=3", "batch_tokens=192", "8 sequences"]),
        (["devices=2", "trainer.strategy=dp"], ["trainer.strategy='dp'", "ddp, fsdp"]),
        (["devices=2", "trainer.strategy=fsdp", "encoding=fire"], ["encoding.c", "ddp"]),
        (["batch_tokens=100"], ["batch_tokens=100", "96"]),
        (["evaluation.factors=[1000]"], ["24000", "validation split"]),
        (["train_length=200000", "batch_tokens=200000"], ["200000"]),
        (["schedule.warmup_fraction=7"], ["schedule", "warmup_fraction=7"]),
        (["precision=fp8"], ["precision='fp8'", "float32, bf16"]),
        (["encoding.layout=3", "encoding=rope"], ["encoding.layout=3"]),
        (["tokenizer=bpe", "tokenizer.vocab_size=3"], ["vocab_size", "3", "257"]),
        (["data.validation=nothing.txt"], ["nothing.txt"]),
        (["data.train=*.nothing"], ["*.nothing"]),
        (["tokenizer=pretrained", "tokenizer.path=no.json"], ["no.json"]),
        (["logger=null"], ["logger"]),
        (["encoding/spectrum=null", "encoding=rope"], ["spectrum"]),
        (["encoding=[alibi]"], ["encoding"]),
        (["~encoding"], ["encoding"]),
        (["~tokens"], ["tokens is missing"]),
        (["validation=null"], ["validation.every_tokens is missing"]),
        (["checkpoint=null"], ["checkpoint.every_seconds is missing"]),
        (["train_length=${nothing}"], ["nothing"]),
        (["evaluation.factors=[1,x]"], ["evaluation.factors=[1, 'x']", "numbers"]),
        (["evaluation.factors=[nan]"], ["evaluation.factors"]),
        (["evaluation.factors=[1e307]"], ["evaluation length", "at most 16,777,216"]),
        (["evaluation.factors=[1e9]"], ["evaluation length 2.4e+10", "at most 16,777,216"]),
        (["logger=wandb", "logger.tags=[a,3]"], ["logger.tags"]),
        (["model.heads=0"], ["heads=0"]),
        (["model.layers=-1"], ["layers=-1"]),
        (["model.layers=true"], ["model.layers=True"]),
        (["model.feed_forward=-3"], ["feed_forward=-3"]),
        (["model.dropout=nan"], ["model.dropout=nan"]),
        (["model.norm=batch_norm"], ["model.norm='batch_norm'", "layer_norm", "rms_norm"]),
        (["seed=-1"], ["seed=-1 must be non-negative"]),
        (["optimizer.betas=[0.9]"], ["betas=[0.9] must be two numbers"]),
        (["optimizer.betas=[0.9,b]"], ["optimizer.betas"]),
        (["schedule.min_lr_ratio=2"], ["min_lr_ratio=2"]),
        (["trainer.accelerator=tpu"], ["trainer.accelerator='tpu'", "auto, cpu, gpu"]),
        (["encoding._target_=os.system"], ["os"]),
        (["data._target_=foo"], ["foo"]),
        (["name=../x"], ["name='../x'"]),
        (["name=.data"], ["name='.data'"]),
        (["about=3"], ["about=3"]),
        (["retry=maybe"], ["retry='maybe' must be true or false"]),
        (["evaluation.split=validation,test"], ["twice", "evaluation"]),
        (["hydra/sweeper=basic"], ["hydra/sweeper"]),
        (["hydra/launcher=basic"], ["hydra/launcher"]),
        (["~data.validation"], ["no validation split", "validation.every_tokens=null"]),
        (["+speed=3"], ["unknown key speed (did you mean seed?)"]),
        (["+evaluation.length=3"], ["unknown key evaluation.length", "evaluation.lengths"]),
        (["grids=3"], ["grids", "list of mappings"]),
        (["evaluation.swaps=[]"], ["evaluation.swaps=[]", "[none]"]),
        (["hydra.launcher.jobs=${oc.env:NO_SUCH_VARIABLE}"], ["hydra.launcher.jobs", "NO_SUCH"]),
        (["modules=[no_such_module]"], ["modules", "no_such_module"]),
        (["optimizer=adamw", "optimizer.learning_rate=0"], ["learning_rate=0.0 must be positive"]),
        (["optimizer=nag", "optimizer.learning_rate=-1"], ["learning_rate=-1.0 must be positive"]),
        (["optimizer.adamw_learning_rate=0"], ["adamw_learning_rate=0.0 must be positive"]),
        (["model.layers=1e9"], ["layers=1000000000 must be at most 512"]),
        (["model.feed_forward=1e12"], ["parameters", "GB", "smaller model"]),
        (["model.width=1e9"], ["width=1000000000 must be at most 131,072"]),
        (["tokenizer=bpe", "tokenizer.vocab_size=1e12"], ["at most 1,048,576"]),
        (["seed=range(1,1e9)"], ["seed=range(1,1e9)", "10,000 jobs"]),
    ],
)
def test_a_mistake_on_the_command_line_of_train_is_named_in_the_error(
    error_of: ErrorOf, overrides: list[str], parts: list[str]
) -> None:
    message = error_of(*overrides)
    for part in parts:
        assert part in message


def test_a_key_that_is_set_twice_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    assert parse("train", ["seed=1", "seed=2"]).overrides == ("seed=1", "seed=2")
    assert "seed is set 2 times" in capsys.readouterr().err
    parse("train", ["seed=1,2", "model=tiny"])
    assert not capsys.readouterr().err


def test_a_data_file_without_text_is_named_in_the_error(error_of: ErrorOf, tmp_path: Path) -> None:
    (tmp_path / "empty.txt").write_text("")
    (tmp_path / "binary.txt").write_bytes(b"valid until \xff\xfe")
    pq.write_table(pa.table({"body": ["a"]}), tmp_path / "other.parquet")
    assert "empty.txt" in error_of("data.train=empty.txt")
    assert "binary.txt" in (message := error_of("data.train=binary.txt")) and "12" in message
    assert "body" in error_of("data.train=other.parquet")
    np.save(tmp_path / "x.npy", np.ones(3))
    assert "x.npy" in error_of("data.train=x.npy")


def test_an_output_folder_that_cannot_be_written_is_named_in_the_error(
    error_of: ErrorOf, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("not a folder")
    assert "file" in error_of("outputs_dir=file", "cache_dir=cache")
    assert "file" in error_of("outputs_dir=file")
    (tmp_path / "loop").symlink_to("loop")
    assert "loop: is not a folder" in error_of("cache_dir=loop")
    if os.getuid() != 0:
        (tmp_path / "locked").mkdir(mode=0o500)
        assert "locked" in error_of("outputs_dir=locked", "cache_dir=cache")


def test_one_invalid_job_stops_the_whole_sweep_before_it_starts(error_of: ErrorOf) -> None:
    message = error_of("encoding=alibi,rope", "model.heads=4,5,32")
    assert "heads=5" in message and "even number of channels" in message


def test_two_configurations_with_the_same_hash_are_distinguished(
    small_run: Callable[..., RunDirectory],
    small_job: list[str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for module in ("posenc.config.identity", "posenc.sweeps.plan", "posenc.sweeps.run_writer"):
        monkeypatch.setattr(f"{module}.short_hash", lambda values: "00000000")
    small_run()
    assert main(["train", *small_job, "tokens=999"]) == 2
    assert "with the same hash (a hash collision)" in capsys.readouterr().err


def test_a_directory_with_another_configuration_is_not_overwritten(
    small_run: Callable[..., RunDirectory],
    small_job: list[str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    run = small_run()
    changed = run.config_file.read_text().replace("train_length: 24", "train_length: 48")
    run.config_file.write_text(changed)
    assert main(["train", *small_job]) == 2
    assert "belongs to a different configuration" in capsys.readouterr().err
    assert run.config_file.read_text() == changed


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["report", "name=nothing"], "outputs/nothing"),
        (["status", "experiment=nothing"], "quickstart"),
        (["report", "tokens=5"], "tokens=5"),
        (["evaluate"], "run is missing"),
        (["evaluate", "run=nowhere"], "run=nowhere: no run in outputs has this prefix"),
        (["trian"], "did you mean train"),
        (["list", "encodings"], "did you mean encoding"),
        (["train", "--verbose"], "unknown flag --verbose"),
        (["status", "--cfg"], "posenc status has no --cfg"),
        (["train", "logger=[wandb,none]"], "omit it from the list"),
        (["train", "--config-dir", "nowhere"], "nowhere"),
        (["train", "--config-dir=", "encoding=rope"], "--config-dir is missing a folder"),
        (["train", "encoding"], "encoding"),
        (["status", "name=5"], "name=5 must be a string"),
        (["check", "encoding=rope", "train_length=1e6"], "must be from 8 to 512"),
        (["inspect", "encoding=rope", "train_length=1e5"], "must be at most 8,192"),
        (["clean", "run=glob(*)"], "run=glob(*)"),
        (["train", "data=task_copy", "data.examples=1e12"], "must be from 1 to 100,000"),
        (["plan", "hydra.searchpath=[x]"], "hydra.searchpath has no effect"),
        (["train", f"seed={'9' * 5000}"], "cannot parse"),
        (["train", "--config-dir", "x" * 5000], "use another path"),
        (["evaluate", f"run={'x' * 5000}"], "use another path"),
        (["x" * 5000], "unknown command"),
        (["train", f"encoding={'x' * 5000}"], "alibi"),
        (["train", f"{'x' * 5000}=1"], "unknown key"),
        (["train", f"a{'.b' * 3000}=1"], "unknown key"),
        (["train", f"about={'[' * 100}{']' * 100}"], "more than 50 nested brackets"),
        (["train", "seed=range(0,10,0)"], "seed=range(0,10,0) has no values"),
        (
            ["search-factors", "length=48", "population=1e9"],
            "population=1000000000 must be at",
        ),
        (["train", f"seed=[{'1,' * 900}1]"], "must be an integer"),
        (["inspect", "encoding=nope", "logger=[]"], "logger is missing"),
        (["inspect", "encoding=nope", "modules=null"], "modules=None must be a list"),
        (["evaluate", "run=x", "modules=[[1]]"], "modules=[[1]] must be a list of strings"),
    ],
)
def test_a_mistake_in_any_command_gets_one_short_message(
    words: list[str],
    part: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(words) == 2
    error = capsys.readouterr().err
    assert part in error and "Traceback" not in error
    assert len(error) < 2500
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("file", "text", "words", "part"),
    [
        ("encoding/own.yaml", "- a\n- b\n", ["inspect", "encoding=own"], "must be a mapping"),
        ("logger/own.yaml", "- a\n", ["inspect", "encoding=nope", "logger=own"], "a mapping"),
        ("model/own.yaml", "- a\n", ["train", "encoding=nope", "model=own"], "a mapping"),
        ("encoding/sub/own.yaml", "", ["plan", "encoding=sub/own"], "the name of an option"),
        ("own.yaml", "", ["plan", "encoding=../own"], "the name of an option"),
        (
            "own.yaml",
            "# @package _global_\nmodules: [own]\n",
            ["plan", "experiment=../own"],
            "the name of an option",
        ),
        (
            "evaluation/swap/own.yaml",
            "_target_: posenc.evaluation.swaps.yarn.YaRN\n1: 2\n",
            ["train", "encoding=rope", "evaluation/swap=own"],
            "both strings and numbers",
        ),
    ],
)
def test_a_mistake_in_a_config_folder_is_named_in_the_error(
    file: str,
    text: str,
    words: list[str],
    part: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (path := tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text or "_target_: posenc.encodings.nope.NoPE\n")
    assert main([*words, "--config-dir", str(tmp_path)]) == 2
    assert part in capsys.readouterr().err


def test_a_current_folder_that_was_deleted_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "deleted"
    folder.mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()
    assert main(["status"]) == 2
    assert "the current directory has been deleted" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("optimizer.learning_rate: 0.1", "write optimizer: {learning_rate: ...}"),
        ("encoding.spectrum.base: 5", "write encoding: {spectrum: {base: ...}}"),
        ("encoding: alibi", "write `override /encoding: alibi` in its defaults list"),
    ],
)
def test_an_experiment_that_uses_the_syntax_of_the_command_line_is_told_that_of_yaml(
    tmp_path: Path, text: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "experiment").mkdir()
    file = tmp_path / "experiment" / "mine.yaml"
    file.write_text(f"# @package _global_\n# An experiment.\nname: mine\n{text}\n")
    assert main(["plan", "--config-dir", str(tmp_path), "experiment=mine"]) == 2
    assert message in capsys.readouterr().err
