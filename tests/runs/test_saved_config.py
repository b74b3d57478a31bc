"""A saved configuration with a value that no command line could set is rejected as a whole."""

import math
from pathlib import Path
from typing import Any

import pytest

from posenc.config.errors import RunError, abbreviate
from posenc.config.saved_yaml import dump_yaml, load_yaml
from posenc.runs.saved_config import read_config

PUBLISHED = Path(__file__).parents[2] / "docs" / "results" / "runs"
CONFIG = (
    PUBLISHED / "absolute_encodings-laptop" / "rope-L128-s1-18bbf41d" / "config.yaml"
).read_text()


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
        ("tokens", 10**4000, "tokens=1000.* must be at most 9,223,372,036,854,775,807"),
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
