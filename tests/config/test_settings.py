"""Types and limits of settings, evaluation lengths and training steps."""

import re

import pytest
from omegaconf import DictConfig, OmegaConf

from compositions import composed
from posenc.config.errors import ConfigError
from posenc.config.settings import check_settings, check_values, evaluation_lengths
from posenc.config.steps import TrainingSteps, training_steps
from posenc.config.values import canonical


def config(*overrides: str) -> DictConfig:
    return composed(*overrides)


def test_the_defaults_are_valid() -> None:
    check_settings(config())


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("train_length=long", "train_length='long' must be an integer"),
        ("train_length=1.5", "train_length=1.5 must be an integer"),
        ("train_length=0", "train_length=0 must be positive"),
        ("tokens=-5", "tokens=-5 must be positive"),
        ("compile=3", "compile=3 must be one of auto, true, false"),
        ("seed=true", "seed=True must be an integer"),
        ("seed='1,2,3'", "under grids (seed: [...])"),
        ("precision=fp16", "precision='fp16' must be one of float32, bf16"),
        ("kernel=flash", "kernel='flash' must be one of auto, reference, causal, key_bias"),
        ("evaluation.split=dev", "one of train, validation, test"),
        ("evaluation.lengths=5", "evaluation.lengths=5 must be a list of integers or null"),
        (
            "evaluation.lengths=[true]",
            "evaluation.lengths=[True] must be a list of integers or null",
        ),
        ("evaluation.factors=[1,true]", "evaluation.factors=[1, True] must be a list of numbers"),
        ("gradient_clip=none", "gradient_clip='none' must be a number or null"),
        ("outputs_dir=", "outputs_dir must not be empty"),
        ("outputs_dir='~/runs'", "write the full path"),
        ("cache_dir='~/runs'", "write the full path"),
        ("cache_dir=' '", "cache_dir must not be empty"),
        ("about={title: [1]}", "about={'title': [1]} must be a mapping of names to strings"),
        ("about={limits: x}", "about has the unknown key 'limits'; available: title, question"),
        ("train_length=1e9", "train_length=1000000000 must be at most 1,048,576, because"),
        ("batch_tokens=24e9", "batch_tokens=24000000000 must be at most 268,435,456, which"),
        ("seed=1e30", "seed=1e+30 must be an integer"),
        ("trainer.strategy=dp", "trainer.strategy='dp' must be one of ddp, fsdp"),
        (f"tokens={10**30}", f"tokens={10**30} must be at most 9,223,372,036,854,775,807"),
        (f"seed={2**63}", "must be at most 9,223,372,036,854,775,807"),
        (f"name={'x' * 81}", "must have at most 80 characters"),
    ],
)
def test_an_invalid_value_is_named_with_its_limit(override: str, message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        check_settings(config(override))


@pytest.mark.parametrize("text", ["a\0b", "a\udcffb"])
def test_text_that_cannot_be_printed_or_be_a_path_is_an_error(text: str) -> None:
    with pytest.raises(ConfigError, match=r"data\.paths\.0=.* cannot be printed"):
        check_values({"data": {"paths": [text]}})


def test_all_problems_are_in_one_message() -> None:
    with pytest.raises(ConfigError) as caught:
        check_settings(config("train_length=0", "precision=fp16"))
    assert "train_length" in str(caught.value) and "precision" in str(caught.value)


@pytest.mark.parametrize(
    ("override", "lengths"),
    [
        ("evaluation.lengths=[1024,512,512]", [512, 1024]),
        ("evaluation.offsets=[0,10,100]", [256, 266, 356]),
        ("evaluation.factors=[1,2.5,16]", [256, 640, 4096]),
        ("seed=1", [256, 512, 1024]),
    ],
)
def test_evaluation_lengths_are_sorted_and_distinct(override: str, lengths: list[int]) -> None:
    assert evaluation_lengths(config(override)) == lengths


def test_a_token_budget_is_converted_to_training_steps() -> None:
    steps = training_steps(config("tokens=1e6", "batch_tokens=4096", "micro_batch_tokens=1024"))
    assert steps == TrainingSteps(total=244, sequences=16, micro_batch_size=4)
    assert steps.accumulation_steps == 4


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["batch_tokens=1000"], "batch_tokens=1000 is not a multiple of train_length=256.*1024"),
        (["micro_batch_tokens=1000"], "micro_batch_tokens=1000 must be a multiple"),
        (["micro_batch_tokens=768"], "divide batch_tokens=2048"),
    ],
)
def test_batch_sizes_that_do_not_divide_are_rejected(overrides: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        training_steps(config(*overrides))


def test_an_indivisible_micro_batch_that_was_found_on_the_device_is_named_in_the_error() -> None:
    composed = config("batch_tokens=1536")
    with pytest.raises(ConfigError, match=r"micro_batch_tokens=512 .* use a divisor of 768"):
        training_steps(composed, devices=2, micro_batch_tokens=512)


def test_whole_floats_become_integers() -> None:
    assert canonical({"a": 5e6, "b": [1.0, 0.5], "c": True}) == {
        "a": 5000000,
        "b": [1, 0.5],
        "c": True,
    }
    assert type(canonical(5e6)) is int
    assert OmegaConf.create(canonical({"x": 1e4})).x == 10000
