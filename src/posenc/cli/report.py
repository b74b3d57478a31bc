"""`posenc report`: print and write the results of an experiment."""

import gc

from posenc.cli.arguments import Arguments
from posenc.cli.run_selection import select_in_folder
from posenc.config.console import Console


def run(arguments: Arguments) -> int:
    strict, full = ("--strict" in arguments.flags, "--full" in arguments.flags)
    folder, select = select_in_folder(arguments)
    from posenc.report.write_report import write_report  # a slow import, deferred

    gc.disable()  # garbage collection takes 7% of a large report's time and frees hardly anything
    write_report(folder, Console(), strict=strict, full=full, select=select)
    return 0
