"""The report of an experiment's folder: tables, figures and a page, from its record alone."""

from posenc.report.write import write_report

__all__ = ["write_report"]
