"""Tables in LaTeX, for the packages booktabs and, where text wraps, tabularx."""

import re
from collections.abc import Sequence

from posenc.report.tables import Table
from posenc.report.verdicts import Line

SPECIAL = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    **{character: f"\\{character}" for character in "{}$&#_%"},
}
EVERY = re.compile("|".join(map(re.escape, SPECIAL)))


def escape(text: str) -> str:
    """Text in which LaTeX finds no command."""
    return EVERY.sub(lambda found: SPECIAL[found[0]], text)


def extrapolation_latex(tables: Sequence[Table]) -> str:
    """A table for each panel, the lowest of each column in bold."""
    return "\n".join(_extrapolation(table) for table in tables)


def verdicts_latex(lines: Sequence[Line]) -> str:
    """The verdicts as one table as wide as the text."""
    head = ("verdict", "$L$", "claim", "left", "right", "difference", "seeds", "published")
    rows = [
        [
            line.outcome,
            "" if line.part else line.length,
            f"\\quad {escape(line.says)}" if line.part else escape(line.says),
            *map(escape, (line.left, line.right, line.difference, line.seeds, line.published)),
        ]
        for line in lines
    ]
    body = _rows([head, *rows])
    columns = "lrXrrrrX"
    return (
        "\\begin{table}\n\\small\n"
        f"\\begin{{tabularx}}{{\\linewidth}}{{{columns}}}\n{body}\\end{{tabularx}}\n"
        "\\caption{Claims: mean over seeds of each side, and the difference paired by seed with"
        " its interval.}\n\\end{table}\n"
    )


def _extrapolation(table: Table) -> str:
    at = [f"{n} ({span})" for n, span in zip(table.lengths, table.spans, strict=True)]
    head = ["encoding", "seeds", *map(escape, at), escape(table.growth)]
    rows = [
        [
            escape(row.label),
            row.seeds,
            *(f"\\textbf{{{cell.text}}}" if cell.best else cell.text for cell in row.cells),
            row.growth,
        ]
        for row in table.rows
    ]
    columns = "l" + "r" * (len(head) - 1)
    body = _rows([head, *rows])
    return (
        f"\\begin{{table}}\n\\begin{{tabular}}{{{columns}}}\n{body}\\end{{tabular}}\n"
        f"\\caption{{{escape(f'{table.title}. {table.caption}')}}}\n\\end{{table}}\n"
    )


def _rows(rows: Sequence[Sequence[str]]) -> str:
    head, *rest = (f"{' & '.join(row)} \\\\\n" for row in rows)
    return f"\\toprule\n{head}\\midrule\n{''.join(rest)}\\bottomrule\n"
