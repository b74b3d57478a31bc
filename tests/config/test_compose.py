"""Composition of configurations, and the error message for each mistake."""

import shutil
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from posenc.config.compose import Composer, compose
from posenc.config.errors import ConfigError, did_you_mean
from posenc.config.paths import conf_dir, groups, options
from posenc.config.resolve import resolve


def test_overrides_replace_defaults() -> None:
    config = compose("train", ["encoding=alibi", "tokens=3e5", "model=small"])
    assert config.encoding["_target_"].endswith("Alibi")
    assert config.tokens == 3e5
    assert config.model.width == 256


def test_a_parameter_inside_a_nested_component_can_be_overridden() -> None:
    config = compose("train", ["encoding=rope", "encoding.spectrum.base=5e5"])
    assert config.encoding.spectrum.base == 5e5


def test_a_composition_is_a_copy_and_is_repeated_when_a_file_changes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    conf = tmp_path / "conf"
    shutil.copytree(conf_dir(), conf)
    (conf / "encoding" / ".#rope.yaml").symlink_to("nowhere")  # an editor's lock file
    monkeypatch.setattr("posenc.config.compose.conf_dir", lambda: conf)
    compose("train", ["encoding=rope"]).encoding.spectrum.base = 5
    assert compose("train", ["encoding=rope"]).encoding.spectrum.base == 10_000
    geometric = conf / "encoding" / "spectrum" / "geometric.yaml"
    geometric.write_text(geometric.read_text().replace("base: 10000", "base: 777"))
    assert compose("train", ["encoding=rope"]).encoding.spectrum.base == 777


def test_the_nearest_keys_are_those_of_the_command() -> None:
    for command in ("train", "evaluate"):
        composer = Composer(command)
        with pytest.raises(ConfigError) as error:
            composer.compose(["optimizer.lr=1"])
        assert ("optimizer.learning_rate" in str(error.value)) == (command == "train")
        with pytest.raises(ConfigError) as error:
            composer.compose(["optimzer=adamw"])
        assert ("did you mean optimizer" in str(error.value)) == (command == "train")
    with pytest.raises(ConfigError, match=r"swap=pii: unknown option .*available: none, alibi_pi"):
        compose("evaluate", ["evaluation/swap=pii"])


@pytest.mark.parametrize("key", ["lengths", "offsets", "factors"])
def test_setting_one_length_key_resets_the_other_two(key: str) -> None:
    config = compose("train", ["experiment=alibi_extrapolation", f"evaluation.{key}=[600]"])
    for other in ("lengths", "offsets", "factors"):
        assert config.evaluation[other] == ([600] if other == key else None)


@pytest.mark.parametrize(
    ("overrides", "parts"),
    [
        (["encoding=rop"], ["encoding=rop", "did you mean rope", "alibi"]),
        (["train_lenght=5"], ["train_lenght", "did you mean train_length"]),
        (["encoding=alibi", "encoding.spectrum.base=5"], ["encoding.spectrum.base"]),
        (["encoding=rope", "encoding.spectrum.bas=5"], ["encoding.spectrum.bas", "spectrum.base"]),
        (["model.widht=5"], ["model.widht", "model.width"]),
        (["optimizer=adamx"], ["optimizer=adamx", "adamw"]),
        (["train_length=[5"], ["key=value"]),
        (["evaluation.lengths=[5]", "evaluation.offsets=[5]"], ["mutually exclusive"]),
        (["hydra/launcher=ray2"], ["hydra/launcher=ray2", "pool"]),
        (["experiment=nothing"], ["experiment=nothing", "quickstart"]),
        (["encoding=[rope,alibi]"], ["omit the brackets: encoding=rope,alibi"]),
        (["encoding.spectrum=geometric"], ["encoding/spectrum=", "geometric"]),
        (["evaluation.swap=yarn"], ["evaluation/swap=", "yarn"]),
    ],
)
def test_a_mistake_gets_one_message(overrides: list[str], parts: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        compose("train", overrides)
    for part in parts:
        assert part in str(caught.value)
    assert "\n" not in str(caught.value)


def test_config_dirs_are_searched_too(tmp_path: Path) -> None:
    (tmp_path / "encoding").mkdir()
    (tmp_path / "encoding" / "mine.yaml").write_text(
        "# A new encoding.\n_target_: mine.Mine\nrate: 2\n"
    )
    config = compose("train", ["encoding=mine", "encoding.rate=3"], [tmp_path])
    assert config.encoding.rate == 3
    assert options("encoding", [tmp_path])["mine"] == "A new encoding."


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name: mine\n", "@package _global_"),
        ("defaults:\n  - mine\n", "includes the file itself"),
    ],
)
def test_an_experiment_that_cannot_be_composed_is_an_error(
    tmp_path: Path, text: str, message: str
) -> None:
    (tmp_path / "experiment").mkdir()
    (tmp_path / "experiment" / "mine.yaml").write_text(text)
    with pytest.raises(ConfigError, match=message):
        compose("train", ["experiment=mine"], [tmp_path])


def test_every_option_of_every_group_has_a_description() -> None:
    for group in groups():
        for name, description in options(group).items():
            assert description.endswith("."), f"{group}/{name}"


def test_did_you_mean_suggests_similar_names() -> None:
    assert did_you_mean("alibbi", ["alibi", "rope"]) == " (did you mean alibi?)"
    assert (
        did_you_mean("o.lr", ["o", "o.lars", "o.learning_rate"])
        == " (did you mean o.learning_rate?)"
    )
    assert did_you_mean("lr", ["o.learning_rate", "lrs"]) == " (did you mean o.learning_rate?)"
    assert did_you_mean("zzz", ["alibi", "rope"]) == ""
    assert did_you_mean("rop", ["rope", "ropes"]) == " (did you mean rope or ropes?)"
    assert did_you_mean("o.x", ["o.x1", "o.x2", "o.x3"]) == " (did you mean o.x3, o.x2 or o.x1?)"


@pytest.mark.parametrize("value", ["nan", "inf", "-inf"])
def test_a_number_that_is_not_finite_is_rejected_at_any_depth(value: str) -> None:
    for key in ("encoding.spectrum.base", "optimizer.betas.1"):
        config = compose("train", [])
        OmegaConf.update(config, key, float(value))
        with pytest.raises(ConfigError, match=rf"{key}={value} must be a finite number"):
            resolve(config)
