"""`posenc report`: what an experiment has found."""

from rich.console import Console

from posenc.cli.arguments import Arguments
from posenc.cli.folder import folder_of
from posenc.report import write_report


def run(arguments: Arguments) -> int:
    write_report(folder_of(arguments), Console(), strict="--strict" in arguments.flags)
    return 0
