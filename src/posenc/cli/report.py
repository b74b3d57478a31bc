"""`posenc report`: print and write the results of an experiment."""

from rich.console import Console

from posenc.cli.arguments import Arguments
from posenc.cli.targets import experiment_folder
from posenc.report.write_report import write_report


def run(arguments: Arguments) -> int:
    strict, full = ("--strict" in arguments.flags, "--full" in arguments.flags)
    write_report(experiment_folder(arguments), Console(), strict=strict, full=full)
    return 0
