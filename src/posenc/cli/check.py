"""`posenc check`: what every encoding must do, tried on one of the user's own, or on all."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table
from rich.text import Text

from posenc.check import SMALL_MODEL, EncodingUnderTest, Result, check, description
from posenc.cli.arguments import Arguments
from posenc.config import components
from posenc.config.compose import parse
from posenc.config.errors import ConfigError
from posenc.config.explain import key_of
from posenc.config.paths import options
from posenc.sweeps.plan import resolved

STYLES = {"pass": "green", "known limitation": "yellow", "fail": "bold red"}


def run(arguments: Arguments) -> int:
    torch.set_num_threads(1)  # more would slow down models as small as these
    for override in parse(arguments.overrides):
        if override.is_sweep_override():
            raise ConfigError(f"{override.input_line}: check takes one value of each key")
    overrides, folders, console = arguments.overrides, list(arguments.config_dirs), Console()
    subject = _subject(overrides, folders)
    if any(key_of(override) == "encoding" for override in overrides):
        return _one(subject, console)
    with_rest = {
        name: [f"encoding={name}", *overrides] for name in sorted(options("encoding", folders))
    }
    failed = [not _line(name, words, folders, console) for name, words in with_rest.items()]
    console.print(f"{len(failed)} encodings, {sum(failed)} with failures")
    return int(any(failed))


def _subject(overrides: Sequence[str], folders: list[Path]) -> EncodingUnderTest:
    """ConfigError for what is wrong with the words or the host rather than the encoding."""
    config = resolved([*SMALL_MODEL, *overrides], folders)
    components.check(config.encoding, name="encoding", modules=list(config.modules), given=1)
    described = options("encoding", folders).get(config.choices.encoding, "")
    subject = EncodingUnderTest(config, described)
    subject.check_model()
    return subject


def _one(subject: EncodingUnderTest, console: Console) -> int:
    """A table of every property; 1 if any fails."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    for name in ("property", "result", "evidence"):
        table.add_column(name, no_wrap=name != "evidence", overflow="fold")
    found: list[Result] = []
    with console.status("checking"):
        for property, result in check(subject):
            found.append(result)
            kind = Text(result.status, STYLES[result.status])
            table.add_row(Text(description(property)), kind, Text(result.evidence))
    console.print(Text(f"encoding={subject.config.choices.encoding}", "bold"))
    console.print(table)
    console.print(_counts(found))
    return int(any(result.status == "fail" for result in found))


def _line(name: str, overrides: Sequence[str], folders: list[Path], console: Console) -> bool:
    """A line for an encoding, and one more for everything that fails; whether nothing does."""
    try:
        found = dict(check(_subject(overrides, folders)))
    except ConfigError as error:
        console.print(Text(f"{name:18}").append(f" fail {error}", STYLES["fail"]), soft_wrap=True)
        return False
    console.print(Text(f"{name:18} ").append(_counts(list(found.values()))))
    wrong = {property: result for property, result in found.items() if result.status == "fail"}
    for property, result in wrong.items():
        line = f"  {description(property)}: {result.evidence}"
        console.print(Text(line, STYLES["fail"]), soft_wrap=True)
    return not wrong


def _counts(found: Sequence[Result]) -> Text:
    counts: Counter[str] = Counter(result.status for result in found)
    parts = [Text(f"{kind} {counts[kind]}", STYLES[kind]) for kind in STYLES if counts[kind]]
    return Text(", ").join(parts)
