"""A run that `posenc.load` returns scores text, generates text and can be evaluated."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from omegaconf import OmegaConf

import posenc
from posenc.cli import main
from posenc.runs.run_directory import RunDirectory

TEXT = "abc def gh abc. Ünï"
EOS = 256  # the end-of-text token of the byte tokenizer


@pytest.fixture(scope="session")
def rope(trained_runs: dict[str, RunDirectory]) -> posenc.LoadedRun:
    return posenc.load(trained_runs["rope"].path)


@pytest.mark.parametrize("repeats", [1, 10])
def test_scores_are_the_log_probabilities_of_the_model(
    rope: posenc.LoadedRun, repeats: int
) -> None:
    text = TEXT * repeats
    tokens = torch.tensor([EOS, *text.encode()])
    with torch.no_grad():
        expected = rope.model(tokens[None])[0].log_softmax(dim=-1)
    scores = rope.score(text)
    assert scores.shape == (len(text.encode()),) and scores.dtype == torch.float32
    torch.testing.assert_close(scores, expected[:-1].gather(1, tokens[1:, None])[:, 0])


def test_scores_add_up_to_the_loss_of_an_evaluation(rope: posenc.LoadedRun, tmp_path: Path) -> None:
    (tmp_path / "short.txt").write_text(TEXT)
    (row,) = rope.evaluate(
        f"data=text data.test={tmp_path}/short.txt evaluation.protocols=[nonoverlapping]"
        f" evaluation.lengths=[{len(TEXT.encode()) + 1}]"
    )
    end = rope.model(torch.tensor([[EOS, *TEXT.encode()]]))[0, -1].log_softmax(dim=-1)[EOS]
    assert row["sum"] == pytest.approx(-(rope.score(TEXT).double().sum() + end).item(), rel=1e-5)


def test_at_temperature_0_each_token_is_the_models_most_likely_one(rope: posenc.LoadedRun) -> None:
    ids = [EOS, *b"abc"]
    for _ in range(60):  # beyond the training length
        ids.append(int(rope.model(torch.tensor([ids]))[0, -1].argmax()))
    text = rope.generate("abc", tokens=60, temperature=0)
    assert text == rope.tokenizer.decode(ids) and text.startswith("abc")


def test_the_same_seed_generates_the_same_text(rope: posenc.LoadedRun) -> None:
    texts = [rope.generate("a", tokens=30, seed=seed) for seed in (1, 1, 2)]
    assert texts[0] == texts[1] != texts[2]
    assert len(rope.generate(tokens=30, seed=3)) > 0


def test_a_text_must_be_a_string(rope: posenc.LoadedRun) -> None:
    for call in (rope.score, rope.generate):
        with pytest.raises(TypeError, match="must be a string, not int"):
            call(5)  # pyrefly: ignore[bad-argument-type]


def test_a_text_longer_than_the_encoding_supports_is_refused(
    trained_runs: dict[str, RunDirectory],
) -> None:
    learned = posenc.load(trained_runs["learned"].path)
    assert learned.score("a" * 24).shape == (24,)
    assert learned.generate("a" * 4, tokens=20)
    with pytest.raises(posenc.ConfigError, match=r"25 tokens exceed the 24 .* encoding=learned"):
        learned.score("a" * 25)
    with pytest.raises(posenc.ConfigError, match=r"25 tokens exceed the 24 .* encoding=learned"):
        learned.generate("a" * 5, tokens=20)


def test_an_evaluation_returns_the_rows_that_the_command_saves(rope: posenc.LoadedRun) -> None:
    protocol = "evaluation.protocols=[nonoverlapping]"
    overrides = ["evaluation.lengths=[24,48]", "evaluation/swap=yarn", protocol]
    rows = rope.evaluate(overrides)
    assert [(row["length"], row["swap"]) for row in rows] == [(24, "yarn"), (48, "yarn")]
    assert main(["evaluate", f"run={rope.path}", *overrides]) == 0
    saved = [row for row in rope.rows if row["swap"] == "yarn"]
    measured = ("seconds", "tokens_per_second", "peak_memory_mb")
    for row, saved_row in zip(rows, saved, strict=True):
        assert {key: row[key] for key in row if key not in measured} == {
            key: saved_row[key] for key in saved_row if key not in measured
        }


@pytest.fixture
def bfloat16_by_default() -> Iterator[None]:
    torch.set_default_dtype(torch.bfloat16)
    torch.set_float32_matmul_precision("medium")
    yield
    torch.set_default_dtype(torch.float32)
    torch.set_float32_matmul_precision("highest")


def test_results_do_not_depend_on_torch_settings_of_the_process(
    trained_runs: dict[str, RunDirectory], request: pytest.FixtureRequest
) -> None:
    def results() -> tuple[list[float], str, list[float]]:
        run = posenc.load(trained_runs["rope"].path)
        losses = [row["loss"] for row in run.evaluate("evaluation.lengths=[24,31]")]
        return run.score(TEXT).tolist(), run.generate("a", tokens=30), losses

    expected = results()
    request.getfixturevalue("bfloat16_by_default")
    assert results() == expected


def test_loading_a_model_draws_no_random_numbers(trained_runs: dict[str, RunDirectory]) -> None:
    before = torch.get_rng_state()
    assert posenc.load(trained_runs["rope"].path).model is not None
    assert torch.equal(torch.get_rng_state(), before)


def test_an_evaluation_prints_nothing(
    rope: posenc.LoadedRun, capfd: pytest.CaptureFixture[str]
) -> None:
    rope.evaluate("evaluation.lengths=[24]")
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    "overrides", ["evaluation.length=[24]", "run=x", "tokenizer=byte", "evaluation/swap=nothing"]
)
def test_an_invalid_evaluation_raises_an_exception(rope: posenc.LoadedRun, overrides: str) -> None:
    with pytest.raises(posenc.ConfigError):
        rope.evaluate(overrides)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("tokens", 0),
        ("tokens", 2.5),
        ("tokens", "3"),
        ("temperature", -1.0),
        ("temperature", float("nan")),
        ("temperature", "warm"),
        ("seed", -1),
        ("seed", True),
    ],
)
def test_invalid_arguments_are_refused(rope: posenc.LoadedRun, name: str, value: Any) -> None:
    with pytest.raises(posenc.ConfigError, match=f"{name}=.* must be"):
        rope.generate("a", **{name: value})


def test_numpy_integers_and_tiny_temperatures_are_accepted(rope: posenc.LoadedRun) -> None:
    expected, seed = rope.generate("a", tokens=9, temperature=0), cast(int, np.int64(3))
    assert rope.generate("a", tokens=9, temperature=1e-310, seed=seed) == expected


@pytest.mark.parametrize("overrides", [[5], "name='x"])
def test_overrides_must_be_strings_with_closed_quotes(
    rope: posenc.LoadedRun, overrides: Any
) -> None:
    for call in (rope.evaluate, posenc.train):
        with pytest.raises(posenc.ConfigError):
            call(overrides)


def test_a_name_that_is_too_long_is_refused() -> None:
    with pytest.raises(posenc.ConfigError, match="name too long"):
        posenc.load("a" * 5000)


def test_an_empty_text_cannot_be_scored(rope: posenc.LoadedRun) -> None:
    with pytest.raises(posenc.ConfigError):
        rope.score("")


def test_a_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(posenc.ConfigError, match="is not a run directory"):
        posenc.load(tmp_path)


def test_a_run_with_an_edited_setting_or_another_tokenizer_is_refused(
    trained_runs: dict[str, RunDirectory], tmp_path: Path
) -> None:
    run = RunDirectory(tmp_path / trained_runs["rope"].name)
    shutil.copytree(trained_runs["rope"].path, run.path)
    saved = run.tokenizer_file.read_text()
    run.tokenizer_file.write_text(saved.replace('"a":', '"b_":'))
    with pytest.raises(posenc.RunError, match="are not the tokenizer of this run"):
        posenc.load(run.path).score("a")
    text = run.config_file.read_text()
    run.config_file.write_text(text.replace("  base: 10000", "  base: 500"))
    assert run.config_file.read_text() != text
    with pytest.raises(posenc.RunError, match="edited since"):
        posenc.load(run.path)


def test_loading_imports_no_untrusted_module(
    trained_runs: dict[str, RunDirectory], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / trained_runs["rope"].name
    shutil.copytree(trained_runs["rope"].path, run)
    config = OmegaConf.load(run / "config.yaml")
    config.encoding["_target_"] = "untrusted_module.Rope"
    OmegaConf.save(config, run / "config.yaml")
    monkeypatch.chdir(tmp_path)
    Path("untrusted_module.py").write_text("raise SystemExit('this code was run')")
    with pytest.raises(posenc.ConfigError, match=r"modules=\['untrusted_module'\]"):
        posenc.load(run)
    Path("untrusted_module.py").unlink()
    with pytest.raises(posenc.ConfigError, match="untrusted_module"):
        _ = posenc.load(run).model
