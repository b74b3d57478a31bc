"""Composing under overrides, and what a mistake is told."""

from pathlib import Path

import pytest
from omegaconf import OmegaConf

from posenc.config.compose import compose
from posenc.config.errors import ConfigError, did_you_mean
from posenc.config.paths import groups, options
from posenc.config.resolve import resolve


def test_defaults_compose_and_overrides_win() -> None:
    config = compose("train", ["encoding=alibi", "tokens=3e5", "model=small"])
    assert config.encoding["_target_"].endswith("Alibi")
    assert config.tokens == 3e5
    assert config.model.width == 256


def test_a_spectrum_is_a_group_of_its_own() -> None:
    config = compose("train", ["encoding=rope", "encoding.spectrum.base=5e5"])
    assert config.encoding.spectrum.base == 5e5


@pytest.mark.parametrize("key", ["lengths", "extra", "factors"])
def test_naming_one_way_to_give_lengths_puts_the_others_away(key: str) -> None:
    given = compose("train", ["experiment=alibi_extrapolation", f"evaluation.{key}=[600]"])
    for other in ("lengths", "extra", "factors"):
        assert given.evaluation[other] == ([600] if other == key else None)


@pytest.mark.parametrize(
    ("overrides", "parts"),
    [
        (["encoding=rop"], ["encoding=rop", "nearest: rope", "alibi"]),
        (["train_lenght=5"], ["train_lenght", "nearest: train_length"]),
        (["encoding=alibi", "encoding.spectrum.base=5"], ["encoding.spectrum.base"]),
        (["encoding=rope", "encoding.spectrum.bas=5"], ["encoding.spectrum.bas", "spectrum.base"]),
        (["model.widht=5"], ["model.widht", "model.width"]),
        (["optimizer=sgd"], ["optimizer=sgd", "adamw"]),
        (["train_length=[5"], ["key=value"]),
        (["evaluation.lengths=[5]", "evaluation.extra=[5]"], ["mutually exclusive"]),
        (["hydra/launcher=ray2"], ["hydra/launcher=ray2", "pool"]),
        (["experiment=nothing"], ["experiment=nothing", "quickstart"]),
    ],
)
def test_a_mistake_is_told_in_one_message(overrides: list[str], parts: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        compose("train", overrides)
    for part in parts:
        assert part in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_experiment_folder_ones_own_is_searched_too(tmp_path: Path) -> None:
    (tmp_path / "encoding").mkdir()
    (tmp_path / "encoding" / "mine.yaml").write_text("# My own.\n_target_: mine.Mine\nrate: 2\n")
    config = compose("train", ["encoding=mine", "encoding.rate=3"], [tmp_path])
    assert config.encoding.rate == 3
    assert options("encoding", [tmp_path])["mine"] == "My own."


def test_every_option_of_every_group_says_what_it_is() -> None:
    for group in groups():
        for name, description in options(group).items():
            assert description.endswith("."), f"{group}/{name}"


def test_nearest_names() -> None:
    assert did_you_mean("alibbi", ["alibi", "rope"]) == " (nearest: alibi)"
    assert did_you_mean("zzz", ["alibi", "rope"]) == ""


@pytest.mark.parametrize("value", ["nan", "inf", "-inf"])
def test_a_number_that_is_none_is_refused_wherever_it_stands(value: str) -> None:
    for key in ("encoding.spectrum.base", "optimizer.betas.1"):
        config = compose("train", [])
        OmegaConf.update(config, key, float(value))
        with pytest.raises(ConfigError, match=rf"{key}={value} must be a finite number"):
            resolve(config)
