"""YAML files of `--config-dir` that would exhaust memory, or are not read, are errors."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from posenc.config.errors import ConfigError
from posenc.config.paths import conf_dir
from posenc.config.yaml_files import check_config_dir

POWERS = [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 12)]
"""Lines whose last value expands to 10^11 values."""
CHAIN = [f"a{i}: &a{i} [*a{i - 1}]" for i in range(1, 100)]
"""Lines whose last value has 100 nested levels."""


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("\n".join(["a0: &a0 1", *POWERS]), "more than 100,000 values"),
        ("about: &a {title: *a}", "more than 100,000 values"),
        ("about: " + "[" * 51 + "]" * 51, "more than 50 nested levels"),
        ("about: " + "[" * 100_000 + "]" * 100_000, "more than 50 nested levels"),
        ("\n".join(["a0: &a0 1", *CHAIN]), "more than 50 nested levels"),
        ("about: {title: *unknown}", "unknown"),
        ("title: caf\xe9", "not UTF-8 at byte 10"),
    ],
)
def test_a_file_that_cannot_be_used(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "experiment" / "mine.yaml"
    file.parent.mkdir()
    file.write_text(text, encoding="latin-1")
    with pytest.raises(ConfigError, match=f"mine.yaml .*{message}"):
        check_config_dir(tmp_path)


def test_files_with_aliases_and_empty_files_are_accepted(tmp_path: Path) -> None:
    (tmp_path / "encoding").mkdir()
    (tmp_path / "encoding" / "a.yaml").write_text("x: &x [1, 2]\ny: *x\n")
    (tmp_path / "encoding" / "b.yaml").write_text("")
    check_config_dir(tmp_path)


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: path.symlink_to("missing")])
def test_what_is_not_a_file_is_an_error_and_not_waited_for(
    tmp_path: Path, make: Callable[[Path], None]
) -> None:
    (tmp_path / "encoding").mkdir()
    make(tmp_path / "encoding" / "a.yaml")
    with pytest.raises(ConfigError, match=r"a\.yaml is not a file"):
        check_config_dir(tmp_path)


def test_a_file_that_posencs_own_would_replace_is_an_error(tmp_path: Path) -> None:
    rope = conf_dir() / "encoding" / "rope.yaml"
    (tmp_path / "encoding").mkdir()
    copy = tmp_path / "encoding" / "rope.yaml"
    copy.write_text(rope.read_text())
    check_config_dir(tmp_path)
    copy.write_text(rope.read_text() + "base: 500\n")
    with pytest.raises(ConfigError, match=r"rope\.yaml has the same name.*rename it"):
        check_config_dir(tmp_path)
