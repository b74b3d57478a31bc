"""`posenc check`: run the property tests on one encoding or on all of them."""

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from posenc.cli.arguments import CFG, Arguments
from posenc.cli.command_setup import print_configs, require_single_values
from posenc.config import components
from posenc.config.compose import Composer
from posenc.config.console import Console
from posenc.config.errors import ConfigError
from posenc.config.overrides import override_key
from posenc.config.paths import options
from posenc.jobs.job_config import compose_job

if TYPE_CHECKING:
    from posenc.check import EncodingUnderTest, Result

SMALL_MODEL = (
    "model.width=32",
    "model.layers=4",
    "model.heads=4",
    "model.feed_forward=64",
    "model.norm=rms_norm",
    "train_length=24",
)
"""Overrides of the training config that let one encoding be checked in a second or two.

There are four layers, because encodings that vary by layer often do so in every fourth layer. The
model has RMS norms, because a layer norm would cancel a value that is the same in every channel.
"""
STYLES = {"pass": "green", "known limitation": "yellow", "hint": "cyan", "fail": "bold red"}


def run(arguments: Arguments) -> int:
    require_single_values(arguments)
    overrides, console = arguments.overrides, Console()
    composer = Composer("train", arguments.config_dirs)
    keys = {override_key(override): override for override in overrides}
    parameters = [o for key, o in keys.items() if key.startswith(("encoding.", "encoding/"))]
    if parameters and "encoding" not in keys:
        raise ConfigError(f"{parameters[0]} is a parameter of one encoding; add encoding=NAME")
    encoding = _encoding_under_test(overrides, composer)
    if "encoding" in keys:
        if CFG in arguments.flags:
            return print_configs([encoding.config])
        return int(not _check_one(encoding, console))
    names = sorted(options("encoding", arguments.config_dirs))
    jobs = {name: [f"encoding={name}", *overrides] for name in names}
    if CFG in arguments.flags:
        return print_configs([compose_job([*SMALL_MODEL, *job], composer) for job in jobs.values()])
    failures = 0
    for name, job in jobs.items():
        failures += not _check_briefly(name, job, composer, console)
    console.print(f"{len(names)} encodings, {failures} with failures")
    return int(failures > 0)


def _encoding_under_test(overrides: Sequence[str], composer: Composer) -> "EncodingUnderTest":
    """Return the encoding to check, with a small model. Raises ConfigError for invalid settings."""
    config = compose_job([*SMALL_MODEL, *overrides], composer)
    import torch  # a slow import, after the configuration has been checked

    from posenc.check import EncodingUnderTest

    torch.set_num_threads(1)  # more threads would slow down such small models
    modules = list(config.modules)
    components.check(config.encoding, name="encoding", modules=modules)
    descriptions = options("encoding", composer.config_dirs)
    encoding = EncodingUnderTest(config, descriptions.get(config.choices.encoding, ""))
    encoding.check_model()
    return encoding


def _check_one(encoding: "EncodingUnderTest", console: Console) -> bool:
    """Print a table of the results of all properties; return True if none fails."""
    from posenc.check import check, description

    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    table.add_column("result", no_wrap=True)
    table.add_column("property: evidence", overflow="fold")
    results: list[Result] = []
    with console.status("checking"):
        for prop, result in check(encoding):
            results.append(result)
            status = Text(result.status, STYLES[result.status])
            line = Text(f"{description(prop)}: ").append(result.evidence, "dim")
            table.add_row(status, line)
    console.print(Text(f"encoding={encoding.config.choices.encoding}", "bold"))
    console.print(table)
    console.print(_counts(results))
    return not any(result.status == "fail" for result in results)


def _check_briefly(
    name: str, overrides: Sequence[str], composer: Composer, console: Console
) -> bool:
    """Print one line for an encoding and one per failure or hint; return True if none failed."""
    from posenc.check import check, description

    try:
        results = dict(check(_encoding_under_test(overrides, composer)))
    except ConfigError as error:
        console.print(Text(f"{name:18}").append(f" fail {error}", STYLES["fail"]), soft_wrap=True)
        return False
    console.print(Text(f"{name:18} ").append(_counts(list(results.values()))))
    for prop, result in results.items():
        if result.status in ("hint", "fail"):
            line = f"  {description(prop)}: {result.evidence}"
            console.print(Text(line, STYLES[result.status]), soft_wrap=True)
    return not any(result.status == "fail" for result in results.values())


def _counts(results: "Sequence[Result]") -> Text:
    counts: Counter[str] = Counter(result.status for result in results)
    parts = [Text(f"{s} {counts[s]}", STYLES[s]) for s in STYLES if counts[s]]
    return Text(", ").join(parts)
