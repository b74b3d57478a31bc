"""YAML files of `--config-dir` that cannot be read or would exhaust memory are errors."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from fuzzing import time_limit
from posenc.config.errors import ConfigError
from posenc.config.grids import compose_sweep
from posenc.config.paths import conf_dir
from posenc.config.yaml_files import check_config_dir, check_config_dirs

POWERS = [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 12)]
"""Lines whose last value expands to 10^11 values."""
CHAIN = [f"a{i}: &a{i} [*a{i - 1}]" for i in range(1, 100)]
"""Lines whose last value has 99 nested lists."""


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("\n".join(["a0: &a0 1", *POWERS]), "more than 100,000 values"),
        ("about: &a {title: *a}", "more than 100,000 values"),
        ("about: " + "[" * 51 + "]" * 51, "more than 50 nested levels"),
        ("about: " + "[" * 100_000 + "]" * 100_000, "more than 50 nested levels"),
        ("\n".join(["a0: &a0 1", *CHAIN]), "more than 50 nested levels"),
        ("about: {title: *unknown}", "unknown"),
        ("3", "a single value"),
        ("true", "a single value"),
        ("title: caf\xe9", "not valid UTF-8 \\(byte 10\\)"),
    ],
)
def test_a_file_that_cannot_be_used_is_an_error(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "experiment" / "mine.yaml"
    file.parent.mkdir()
    file.write_text(text, encoding="latin-1")
    with pytest.raises(ConfigError, match=f"mine.yaml .*{message}"):
        check_config_dir(tmp_path)


GLOBAL = "# @package _global_\n"
CONCATENATIONS = [f"  a{i}: {f'${{about.a{i - 1}}}' * 10}\n" for i in range(1, 12)]
COPIES = [f"  a{i}: {{x: '${{..a{i - 1}}}', y: '${{..a{i - 1}}}'}}\n" for i in range(1, 40)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("defaults:\n- /other@about: powers\n", "powers.yaml has more than 100,000 values"),
        ("about:\n  a0: text\n" + "".join(CONCATENATIONS), "more than 100,000 values"),
        ("about:\n  a0: {x: 1}\n" + "".join(COPIES), "more than 100,000 values"),
        ("about:\n  a: ${about.b}\n  b: ${about.a}\n", "refer to themselves"),
        ("tokens: 1\ntokens: 2\n", "mine.yaml cannot be used .*found duplicate key tokens"),
        ("about: !!set {a}\n", "mine.yaml cannot be used .*'set' is not a supported"),
        ("- a\n", "mine.*ConfigTypeError raised while composing config: ."),
        ("sizes: {laptop: [5]}\n", "sizes=.* must be a mapping of names to lists of strings"),
        ("debug: 5\n", "debug=5 must be a mapping"),
        ("debug: {overrides: [5]}\n", "debug.overrides=.5. must be a list of strings"),
    ],
)
def test_an_experiment_that_cannot_be_composed_is_an_error_and_does_not_hang(
    tmp_path: Path, text: str, message: str
) -> None:
    """A file can include others in groups that posenc does not have."""
    for file, contents in {
        "experiment/mine.yaml": f"{GLOBAL}{text}",
        "other/powers.yaml": "\n".join(["a0: &a0 1", *POWERS]),
    }.items():
        (tmp_path / file).parent.mkdir()
        (tmp_path / file).write_text(contents)
    with time_limit(text), pytest.raises(ConfigError, match=message):
        compose_sweep("train", ["experiment=mine"], [check_config_dir(tmp_path)])


def test_files_with_aliases_and_empty_files_are_accepted(tmp_path: Path) -> None:
    (tmp_path / "encoding").mkdir()
    (tmp_path / "encoding" / "a.yaml").write_text("x: &x [1, 2]\ny: *x\n")
    (tmp_path / "encoding" / "b.yaml").write_text("")
    check_config_dir(tmp_path)


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: path.symlink_to("missing")])
def test_an_entry_that_is_not_a_regular_file_is_an_error_and_does_not_block(
    tmp_path: Path, make: Callable[[Path], None]
) -> None:
    (tmp_path / "encoding").mkdir()
    make(tmp_path / "encoding" / "a.yaml")
    with pytest.raises(ConfigError, match=r"a\.yaml is not a file"):
        check_config_dir(tmp_path)


def test_a_different_file_with_the_name_of_one_of_posencs_is_an_error(tmp_path: Path) -> None:
    rope = conf_dir() / "encoding" / "rope.yaml"
    (tmp_path / "encoding").mkdir()
    copy = tmp_path / "encoding" / "rope.yaml"
    copy.write_text(rope.read_text())
    check_config_dir(tmp_path)
    copy.write_text(rope.read_text() + "base: 500\n")
    with pytest.raises(ConfigError, match=r"rope\.yaml has the same name.*rename it"):
        check_config_dir(tmp_path)


def test_two_folders_must_not_have_different_files_of_one_name(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("a", "b")]
    for folder in folders:
        (folder / "encoding").mkdir(parents=True)
        (folder / "encoding" / "mine.yaml").write_text("# Mine.\n_target_: mine.Mine\n")
    assert check_config_dirs(folders) == folders
    (folders[1] / "encoding" / "mine.yaml").write_text("# Mine.\n_target_: mine.Other\n")
    with pytest.raises(ConfigError, match=r"a/encoding/mine.yaml shadows .*b/encoding/mine.yaml"):
        check_config_dirs(folders)
