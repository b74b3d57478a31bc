"""A swap gives the loss of a model built with the swapped encoding."""

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from posenc.cli import main
from posenc.config.compose import compose
from posenc.config.errors import ConfigError
from posenc.config.paths import options
from posenc.config.swaps import evaluation_swaps, normalize_swaps
from posenc.evaluation.swap import swapped_config
from posenc.jobs.exit_codes import FINISHED
from posenc.jobs.job import main as job
from posenc.model.build import build_model
from posenc.runs.loss_arrays import position_array_name, read_arrays
from posenc.runs.run_directory import RunDirectory
from posenc.sweeps.plan import plan

LENGTH = 61
EOS = 256  # the end-of-text token of the byte tokenizer
SIZES = ("width", "layers", "heads", "feed_forward")
FACTOR = f"encoding.spectrum.factor={LENGTH / 24}"
SPECTRUM = "encoding/spectrum"
FIXED = "encoding.trainable=false"
OVERRIDES = {
    "pi": [f"{SPECTRUM}=position_interpolation", FACTOR],
    "pi factor=4": [f"{SPECTRUM}=position_interpolation", "encoding.spectrum.factor=4"],
    "ntk": [f"{SPECTRUM}=ntk", FACTOR],
    "yarn": [f"{SPECTRUM}=yarn", FACTOR],
    "yarn beta_slow=2 factor=3": [
        f"{SPECTRUM}=yarn",
        "encoding.spectrum.factor=3",
        "encoding.spectrum.beta_slow=2",
    ],
    "dynamic_ntk": [f"{SPECTRUM}=dynamic_ntk"],
    "llama3": [f"{SPECTRUM}=llama3", FACTOR],
    "longrope": [f"{SPECTRUM}=longrope", FACTOR],
    "longrope factor=1 long_factor=[1,1,3,4]": [
        "encoding=longrope",
        "encoding.factors=[1,1,3,4]",
        "encoding.start_tokens=0",
    ],
    "window": ["encoding=window", "encoding.size=24"],
    "window size=5": ["encoding=window", "encoding.size=5"],
    "streaming_llm size=9": ["encoding=streaming_llm", "encoding.size=9"],
    "self_extend group_size=3": ["encoding=self_extend", "encoding.group_size=3"],
    "rerope": ["encoding=rerope"],
    "dual_chunk": ["encoding=dual_chunk"],
    "lm_infinite": ["encoding=lm_infinite"],
    "log_n": ["encoding=log_n"],
    "temperature rule=llama4": ["encoding=temperature", "encoding.rule=llama4", FIXED],
}
ROPE = "encoding=rope"


def loss_of(run: RunDirectory, tokens: Tensor, overrides: list[str]) -> float:
    """Mean loss over windows of LENGTH, with the run's weights in a model of `overrides`."""
    config = run.config()
    sizes = [f"model.{name}={value}" for name, value in config.model.items() if name in SIZES]
    lengths = ["train_length=24", "tokens=7680", "batch_tokens=192"]
    composed = compose("train", [*sizes, *lengths, ROPE, *overrides])
    model = build_model(composed, 257).eval()
    (newest, *_) = sorted(run.checkpoints.glob("step-*.ckpt"), reverse=True)
    state = torch.load(newest, weights_only=True)["state_dict"]
    model.load_state_dict({key.removeprefix("model."): value for key, value in state.items()})
    model.double()
    shifted = torch.cat([torch.tensor([EOS]), tokens[:-1]])
    total = 0.0
    with torch.no_grad():
        for inputs, targets in zip(shifted.split(LENGTH), tokens.split(LENGTH), strict=True):
            total += model.losses(inputs[None], targets[None]).sum().item()
    return total / len(tokens)


def test_every_swap_is_tested() -> None:
    for_rope = set(options("evaluation/swap")) - {"alibi_pi"}  # tests/encodings/test_alibi_pi.py
    assert {swap.split()[0] for swap in OVERRIDES} == for_rope


@pytest.mark.slow
def test_a_swap_equals_a_model_built_with_that_encoding(
    short_run: RunDirectory,
    short_tokens: Tensor,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """On whole windows; the next test covers a factor of null in a shorter last window."""
    run = RunDirectory(shutil.copytree(short_run.path, tmp_path / short_run.name))
    whole = short_tokens[: len(short_tokens) // LENGTH * LENGTH]
    file = tmp_path / "whole.txt"
    file.write_bytes(bytes(whole[:-1].tolist()))
    whole = torch.cat([whole[:-1], torch.tensor([EOS])])
    swaps = ",".join(["none", *(f"'{swap}'" for swap in OVERRIDES)])
    corpus = ["data=text", f"data.validation={file}", f"evaluation.lengths=[{LENGTH}]"]
    evaluation = ["evaluation=nonoverlapping", f"evaluation.swaps=[{swaps}]"]
    assert main(["evaluate", f"run={run.path}", *corpus, *evaluation]) == 0
    printed = capsys.readouterr().out
    trained_on = run.config().planned.fingerprint
    measured = [row for row in run.rows() if row["length"] == LENGTH]
    rows = {row["swap"]: row for row in measured if row["data"] != trained_on}
    assert set(rows) == {None, *OVERRIDES}
    unswapped_loss = loss_of(run, whole, [])
    for swap, overrides in OVERRIDES.items():
        assert swap in printed
        loss = loss_of(run, whole, overrides)
        assert rows[swap]["loss"] == pytest.approx(loss, abs=1e-6), swap
        assert abs(loss - unswapped_loss) > 1e-5, swap
    assert rows[None]["loss"] == pytest.approx(unswapped_loss, abs=1e-6)
    arrays = read_arrays(run.positions_file)
    sums = {swap: arrays[f"{position_array_name(row)}.sum"].sum() for swap, row in rows.items()}
    assert sums == pytest.approx({swap: row["sum"] for swap, row in rows.items()}, rel=1e-9)


def test_a_factor_of_null_depends_on_the_evaluation_length_even_in_a_shorter_last_window(
    short_run: RunDirectory, short_tokens: Tensor
) -> None:
    overrides = [f"run={short_run.path}", f"evaluation.lengths=[12,{LENGTH}]", "evaluation/swap=pi"]
    assert main(["evaluate", *overrides]) == 0
    short, long = (
        row
        for row in short_run.rows()
        if row["swap"] == "pi" and row["protocol"] == "nonoverlapping" and row["length"] in (12, 61)
        if row["data"] == short_run.config().planned.fingerprint
    )
    assert long["loss"] == pytest.approx(
        loss_of(short_run, short_tokens, OVERRIDES["pi"]), abs=1e-6
    )
    assert main(["evaluate", f"run={short_run.path}", "evaluation.lengths=[12]"]) == 0
    (unswapped,) = (
        row
        for row in short_run.rows()
        if (row["swap"], row["protocol"], row["length"]) == (None, "nonoverlapping", 12)
    )
    assert short["loss"] == unswapped["loss"]  # a factor of null is 1 within the training length


def test_commas_evaluate_several_swaps_in_one_table(
    short_run: RunDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    overrides = [f"run={short_run.path}", "evaluation.lengths=[33]", "evaluation=last_k"]
    parameters = ["evaluation.k=4", "evaluation/swap=none,pi,ntk,log_n"]
    factors = ["evaluation.swap.factor=2,4.5"]
    assert main(["evaluate", *overrides, *parameters, *factors]) == 0
    rows = [row for row in short_run.rows() if row["length"] == 33]
    expected = {"pi factor=2", "pi factor=4.5", "ntk factor=2", "ntk factor=4.5", "log_n", None}
    assert {row["swap"] for row in rows} == expected and len(rows) == len(expected)
    assert capsys.readouterr().out.count(" on text (validation)") == 1


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["evaluation/swap=yarm"], "unknown option (did you mean yarn"),
        (["evaluation.swaps=[none,yarm]"], "unknown option (did you mean yarn"),
        (["evaluation.swaps=['yarn fctor=2']"], "unknown key evaluation.swap.fctor"),
        (["evaluation.swaps=['none x=1']"], "none has no parameters"),
        (["evaluation.swaps=['pi factor=2 factor=3']"], "sets factor more than once"),
        (["evaluation/swap=pi", "evaluation.swap.factor=0.5"], "factor=0.5 must be from 1 to"),
        (["evaluation/swap=window", "evaluation.swap.size=0"], "size=0 must be at least 1"),
        (["evaluation/swap=pi", "evaluation.swaps=[ntk]"], "are mutually exclusive"),
        (["evaluation/swap=none,pi", "evaluation.swaps=[ntk]"], "are mutually exclusive"),
        (["evaluation/swap=pi,yarm"], "unknown option (did you mean yarn"),
        (
            ["evaluation/swap=none,log_n", "evaluation.swap.factor=2"],
            "no selected swap (none, log_n)",
        ),
        (["evaluation.swap=pi"], "evaluation/swap= to one of"),
        (["evaluation/swap=pi", "evaluation.swap.factor=many"], "must be of type"),
        (["evaluation/swap=log_n", "~evaluation.swap.rule"], "cannot be deleted"),
        (["evaluation.swaps={yarn: null}"], "must be a list"),
    ],
)
def test_an_invalid_swap_gives_one_error_message(
    overrides: list[str], message: str, short_run: RunDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["evaluate", f"run={short_run.path}", *overrides]) == 2
    printed = " ".join(capsys.readouterr().err.split())
    assert message in printed and "Traceback" not in printed


def test_a_custom_swap_without_a_target_gives_one_error_message(
    short_run: RunDirectory, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "conf" / "evaluation" / "swap" / "mine.yaml"
    file.parent.mkdir(parents=True)
    file.write_text("spectrum: {_target_: posenc.encodings.spectra.yarn}\n")
    arguments = [
        f"run={short_run.path}",
        "evaluation/swap=mine",
        "--config-dir",
        str(tmp_path / "conf"),
    ]
    assert main(["evaluate", *arguments]) == 2
    assert "evaluation.swap has no _target_" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("encoding", "message"),
    [
        (["encoding=alibi"], "swap=pi: Alibi has no spectrum to replace"),
        (["encoding=nope"], "swap=pi: NoPE has no spectrum to replace"),
        (["encoding=rope", "encoding.trainable=true"], "trainable=true"),
        (["encoding=rope", "encoding/spectrum=power"], "only the geometric spectrum can be scaled"),
        (["encoding=drope"], "Drope drops its positional encoding"),
    ],
)
def test_a_swap_that_the_encoding_does_not_support_is_an_error_before_training(
    encoding: list[str], message: str, small_job: list[str], tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=r"evaluation/swap=pi") as caught:
        plan([[*small_job, *encoding, "evaluation.swaps=[none,pi]"]], [], "test", print)
    assert message in str(caught.value)
    assert not (tmp_path / "outputs" / "scratch").exists()


def test_a_subclass_of_drope_is_recognized(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = "from posenc.encodings.drope import Drope\n\nclass Mine(Drope):\n    pass\n"
    (tmp_path / "my_drope.py").write_text(code)
    monkeypatch.chdir(tmp_path)
    overrides = ["encoding=drope", "encoding._target_=my_drope.Mine", "modules=[my_drope]"]
    config = compose("train", [*overrides, "evaluation.swaps=[pi]"])
    normalize_swaps(config, None, [])
    ((text, swap),) = evaluation_swaps(config).items()
    assert text is not None and swap is not None
    with pytest.raises(ConfigError, match="Mine drops its positional encoding"):
        swapped_config(config, text, swap, 1024)


def test_spectra_inside_wrappers_keep_their_own_base() -> None:
    config = compose("train", ["encoding=rnope_swa", "evaluation.swaps=['yarn factor=4']"])
    config.encoding.first.inner.spectrum.base = 500000
    normalize_swaps(config, None, [])
    ((text, swap),) = evaluation_swaps(config).items()
    assert text == "yarn factor=4" and swap is not None
    changed = swapped_config(config, text, swap, 1024).encoding
    spectrum = changed.first.inner.spectrum
    assert spectrum._target_ == "posenc.encodings.spectra.yarn"
    assert (spectrum.base, spectrum.factor, spectrum.beta_fast) == (500000, 4, 32)
    assert config.encoding.first.inner.spectrum._target_ == "posenc.encodings.spectra.geometric"
    assert changed.second == config.encoding.second


@pytest.fixture
def custom_swap_name(tmp_path: Path) -> Callable[[str], str]:
    """Returns the name of a swap from --config-dir with the given YAML text."""
    file = tmp_path / "evaluation" / "swap" / "mine.yaml"
    file.parent.mkdir(parents=True)

    def name(text: str) -> str:
        file.write_text(text)
        config = compose("train", ["encoding=rope", "evaluation/swap=mine"], [tmp_path])
        normalize_swaps(config, "mine", [tmp_path])
        (name,) = evaluation_swaps(config)
        return str(name)

    return name


def test_the_name_of_a_custom_swap_has_its_parameter(
    custom_swap_name: Callable[[str], str],
) -> None:
    target = "_target_: posenc.encodings.spectra.position_interpolation\n"
    assert custom_swap_name(f"{target}factor: 2\n") == "mine factor=2"
    assert custom_swap_name(f"{target}factor: 8\n") == "mine factor=8"


def test_the_name_of_a_custom_swap_has_a_hash_of_its_list(
    custom_swap_name: Callable[[str], str],
) -> None:
    text = "_target_: posenc.encodings.spectra.longrope\nlong_factor: [1.0, 2.0]\nfactor: 2\n"
    name = custom_swap_name(text)
    assert re.fullmatch(r"mine factor=2 long_factor=[0-9a-f]{8}", name)
    assert custom_swap_name(text.replace("2.0]", "3.0]")) != name
    assert custom_swap_name(text) == name


@pytest.fixture
def run_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[RunDirectory], None]:
    """Runs a job like a process of a sweep, which imports a copy of the code without `conf/`."""

    def run(directory: RunDirectory) -> None:
        with monkeypatch.context() as context:
            context.setattr("posenc.config.paths._PACKAGE", tmp_path / "copy" / "posenc")
            assert job([str(directory.path)]) == FINISHED, directory.status().error

    return run


def test_a_run_measures_its_swaps_once(
    small_job: list[str], run_job: Callable[[RunDirectory], None]
) -> None:
    few = ["tokens=384", "validation.every_tokens=null", "evaluation.factors=[1]"]
    overrides = [
        *small_job,
        *few,
        "encoding=sinusoidal",
        "evaluation.swaps=[none,pi,'window size=9']",
    ]
    run = plan([overrides], [], "test", print)[0].run
    run_job(run)
    assert {row["swap"] for row in run.rows()} == {None, "pi", "window size=9"}
    assert len(run.rows()) == 6
    before = run.evaluation_file.read_bytes()
    plan([overrides], [], "test", print)
    assert run.status().state == "finished"
    assert run.evaluation_file.read_bytes() == before
    plan([[*small_job, *few, "encoding=sinusoidal", "evaluation.swaps=[log_n]"]], [], "t", print)
    assert run.status().state == "pending"


@pytest.mark.slow
def test_a_custom_swap_is_measured_again_after_an_edit_that_keeps_its_name(
    small_job: list[str], tmp_path: Path, run_job: Callable[[RunDirectory], None]
) -> None:
    file = tmp_path / "conf" / "evaluation" / "swap" / "mine.yaml"
    file.parent.mkdir(parents=True)
    job_overrides = [*small_job, "encoding=sinusoidal", "evaluation/swap=mine"]
    job_overrides += ["tokens=384", "validation.every_tokens=null", "evaluation.factors=[2]"]

    def run_with(spectrum: str) -> RunDirectory:
        file.write_text(f"_target_: posenc.encodings.spectra.{spectrum}\nfactor: 2\n")
        return plan([job_overrides], [tmp_path / "conf"], "test", print)[0].run

    run = run_with("position_interpolation")
    run_job(run)
    (before,) = (row for row in run.rows() if row["protocol"] == "nonoverlapping")
    assert run_with("position_interpolation").status().state == "finished"
    assert run_with("ntk").status().state == "pending"
    run_job(run)
    (after,) = (row for row in run.rows() if row["protocol"] == "nonoverlapping")
    assert before["swap"] == after["swap"] == "mine factor=2"
    assert before["loss"] != after["loss"]
