"""`posenc check`: run the property tests of encodings on one encoding, or on all."""

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
from posenc.config.errors import ConfigError
from posenc.config.overrides import override_key, parse
from posenc.config.paths import options
from posenc.jobs.job_config import compose_job

STYLES = {"pass": "green", "known limitation": "yellow", "fail": "bold red"}


def run(arguments: Arguments) -> int:
    torch.set_num_threads(1)  # more threads slow down models as small as these
    for override in parse(arguments.overrides):
        if override.is_sweep_override():
            raise ConfigError(f"{override.input_line}: check takes a single value of each key")
    overrides, config_dirs, console = arguments.overrides, arguments.config_dirs, Console()
    subject = _subject(overrides, config_dirs)
    if any(override_key(override) == "encoding" for override in overrides):
        return _check_one(subject, console)
    failures = 0
    names = sorted(options("encoding", config_dirs))
    for name in names:
        failures += not _check_in_line(name, [f"encoding={name}", *overrides], config_dirs, console)
    console.print(f"{len(names)} encodings, {failures} with failures")
    return int(failures > 0)


def _subject(overrides: Sequence[str], config_dirs: Sequence[Path]) -> EncodingUnderTest:
    """Compose the encoding and its small model; ConfigError if the request itself is wrong."""
    config = compose_job([*SMALL_MODEL, *overrides], config_dirs)
    modules = list(config.modules)
    components.check(config.encoding, name="encoding", modules=modules, num_args=1)
    subject = EncodingUnderTest(
        config, options("encoding", config_dirs).get(config.choices.encoding, "")
    )
    subject.check_model()
    return subject


def _check_one(subject: EncodingUnderTest, console: Console) -> int:
    """Print a table of every property; returns 1 if any fails."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    for name in ("property", "result", "evidence"):
        table.add_column(name, no_wrap=name != "evidence", overflow="fold")
    results: list[Result] = []
    with console.status("checking"):
        for property, result in check(subject):
            results.append(result)
            kind = Text(result.status, STYLES[result.status])
            table.add_row(Text(description(property)), kind, Text(result.evidence))
    console.print(Text(f"encoding={subject.config.choices.encoding}", "bold"))
    console.print(table)
    console.print(_counts(results))
    return int(any(result.status == "fail" for result in results))


def _check_in_line(
    name: str, overrides: Sequence[str], config_dirs: Sequence[Path], console: Console
) -> bool:
    """Print a line for an encoding and one per failure; returns whether there is none."""
    try:
        results = dict(check(_subject(overrides, config_dirs)))
    except ConfigError as error:
        console.print(Text(f"{name:18}").append(f" fail {error}", STYLES["fail"]), soft_wrap=True)
        return False
    console.print(Text(f"{name:18} ").append(_counts(list(results.values()))))
    failed = {property: result for property, result in results.items() if result.status == "fail"}
    for property, result in failed.items():
        line = f"  {description(property)}: {result.evidence}"
        console.print(Text(line, STYLES["fail"]), soft_wrap=True)
    return not failed


def _counts(results: Sequence[Result]) -> Text:
    counts: Counter[str] = Counter(result.status for result in results)
    parts = [Text(f"{kind} {counts[kind]}", STYLES[kind]) for kind in STYLES if counts[kind]]
    return Text(", ").join(parts)
