"""The report of an experiment, from the files of its runs: claims, tables, figures and a page."""
