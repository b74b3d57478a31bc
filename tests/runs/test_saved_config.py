"""A saved configuration with an impossible or an edited value is rejected."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from posenc.config.errors import RunError, abbreviate
from posenc.config.saved_yaml import dump_yaml, load_yaml
from posenc.runs.run_directory import RunDirectory
from posenc.runs.saved_config import read_config

PUBLISHED = Path(__file__).parents[2] / "docs" / "results" / "runs"
CONFIG = (
    PUBLISHED / "absolute_encodings-laptop" / "rope-L128-s1-18bbf41d" / "config.yaml"
).read_text()
SmallRun = Callable[..., RunDirectory]


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("cache_dir", "???", "cache_dir is missing"),
        ("cache_dir", None, "cache_dir=None must be a string"),
        ("cache_dir", "a\0b", "cannot be printed"),
        ("data", "???", "data is missing"),
        ("data", 5, "data=5 must be a mapping"),
        ("trainer", None, "trainer.accelerator is missing"),
        ("evaluation.protocols", None, "evaluation.protocols=None must be a list of strings"),
        ("evaluation.protocols", ["???"], "evaluation.protocols.0 is missing"),
        ("size", ["laptop"], "size=.* must be a string"),
        ("about", 5, "about=5 must be a mapping"),
        ("callbacks", 5, "callbacks=5 must be a mapping"),
        ("callbacks", {"a": 5}, "callbacks=.* must be a mapping of names to mappings"),
        ("debug", {"steps": "many"}, "debug.steps='many' must be an integer or null"),
        ("choices.tokenizer", [1], "choices=.* must be a mapping of names to strings"),
        ("planned.run", "???", "planned.run is missing"),
        ("model._target_", ["a"], "model._target_=.* must be a string"),
        ("optimizer._partial_", "yes", "optimizer._partial_='yes' must be true or false"),
        ("encoding.spectrum", {1: 2, "a": 3}, "strings and numbers as keys"),
        ("schedule.min_lr_ratio", math.inf, "min_lr_ratio=inf must be a finite number"),
        ("tokens", 10**90, "tokens=1000.* must be at most 9,223,372,036,854,775,807"),
        ("planned.lengths", [10**30], "planned.lengths.0=1000.* must be at most"),
    ],
)
def test_an_impossible_value_is_named_with_the_remedy(
    tmp_path: Path, key: str, value: Any, message: str
) -> None:
    values = load_yaml(CONFIG)
    *parents, last = key.split(".")
    node = values
    for parent in parents:
        node = node[parent]
    node[last] = value
    file = tmp_path / "config.yaml"
    file.write_text(dump_yaml(values))
    with pytest.raises(RunError, match=message) as caught:
        read_config(file)
    text = abbreviate(str(caught.value))
    assert str(file) in text and "restore it, or delete" in text


def edit(run: RunDirectory, old: str, new: str) -> None:
    text = run.config_file.read_text()
    assert old in text
    run.config_file.write_text(text.replace(old, new))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("  encoding: rope\n", "  encoding: alibi\n"),
        ("  model: tiny\n", "  model: small\n"),
        ("  split: validation\n", "  split: test\n"),
        ("  parameters: ", "  parameters: 1"),
        ("  posenc_version: ", "  posenc_version: 9"),
    ],
)
def test_an_edited_setting_outside_the_hash_is_an_error_until_the_command_is_rerun(
    small_run: SmallRun, old: str, new: str
) -> None:
    run = small_run("encoding=rope")
    before = run.verified_config_dict()
    edit(run, old, new)
    with pytest.raises(RunError, match="edited since"):
        run.verified_config_dict()
    small_run("encoding=rope")
    assert run.verified_config_dict() == before


def test_runs_of_earlier_versions_have_the_settings_that_their_name_states(
    small_run: SmallRun,
) -> None:
    """Their configurations have no digest."""
    run = small_run("encoding=rope")
    digest = run.config_dict()["planned"]["digest"]
    edit(run, f"  digest: {digest}\n", "")
    assert run.verified_config_dict()["choices"]["encoding"] == "rope"
    edit(run, "  encoding: rope\n", "  encoding: alibi\n")
    with pytest.raises(RunError, match="has the settings of alibi-L24-s1"):
        run.verified_config_dict()
