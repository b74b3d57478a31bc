"""Flags: `--version`, `--cfg`, and the alternatives to flags that posenc does not support."""

from pathlib import Path

import pytest
import yaml

from posenc import __version__
from posenc.cli.arguments import SHORT_FLAGS, UNSUPPORTED_FLAGS, parse
from posenc.cli.main import main
from posenc.config.errors import ConfigError
from posenc.config.paths import options


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.split() == ["posenc", __version__]


@pytest.mark.parametrize("words", [["--cfg"], ["--cfg=job"], ["--cfg", "job"], ["-c", "job"]])
def test_hydras_forms_of_cfg_are_accepted(words: list[str]) -> None:
    arguments = parse("train", [*words, "seed=2"])
    assert (arguments.flags, arguments.overrides) == ({"--cfg"}, ("seed=2",))


def test_hydras_own_settings_are_not_printed() -> None:
    with pytest.raises(ConfigError, match="only --cfg job"):
        parse("train", ["--cfg", "hydra"])


@pytest.mark.parametrize("flag", [*UNSUPPORTED_FLAGS, "-cn", "-sc", "-i"])
def test_the_error_for_an_unsupported_flag_names_the_alternative(flag: str) -> None:
    with pytest.raises(ConfigError) as error:
        parse("train", [f"{flag}=value"])
    assert UNSUPPORTED_FLAGS[SHORT_FLAGS.get(flag, flag)] in str(error.value)


def test_multirun_is_accepted_where_commas_make_a_sweep() -> None:
    assert parse("bench", ["-m", "encoding=rope,alibi"]).overrides == ("encoding=rope,alibi",)
    with pytest.raises(ConfigError, match="unknown flag"):
        parse("status", ["--multirun"])


@pytest.mark.parametrize(
    ("command", "words", "key"),
    [
        ("train", ["encoding=rope,alibi"], "tokens"),
        ("plan", ["encoding=rope", "machine=h100"], "tokens"),
        ("evaluate", ["run=outputs/a/b"], "run"),
        ("bench", ["encoding=rope"], "rounds"),
        ("inspect", ["encoding=rope"], "encoding"),
        ("check", ["encoding=rope"], "encoding"),
        ("search-factors", ["run=outputs/a/b"], "population"),
        ("tune", ["encoding=rope", "tokens=int(interval(1e6,2e6))", "trials=2"], "tokens"),
        ("wandb-sweep", ["encoding=rope"], "tokens"),
    ],
)
def test_cfg_prints_the_composed_configuration(
    command: str,
    words: list[str],
    key: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([command, *words, "--cfg"]) == 0
    first = capsys.readouterr().out.split("\n\n")[0]
    assert key in yaml.safe_load(first)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_cfg_prints_the_configurations_of_all_encodings_that_check_would_check(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["check", "--cfg"]) == 0
    configs = capsys.readouterr().out.strip().split("\n\n")
    names = [yaml.safe_load(config)["choices"]["encoding"] for config in configs]
    assert names == sorted(options("encoding"))
