"""What each file of a report is."""

from posenc.report.results import Results

TABLES = {
    "claims": "the verdicts",
    "accuracy": "the tables of accuracy",
    "extrapolation": "the tables of perplexity",
    "runs": "every evaluation of every run, unrounded, with perplexity per word and per byte",
}
KINDS = {
    "csv": "as numbers",
    "md": "for a README or a note",
    "tex": "for LaTeX with booktabs",
    "png": "for screens",
    "svg": "for print",
}


def told(name: str, results: Results) -> str:
    """A line about the file of this name."""
    stem, _, kind = name.partition(".")
    if stem in TABLES:
        what = TABLES[stem]
    else:
        title = next(picture.title for picture in results.pictures if picture.file == stem)
        what = f"the figure “{title}”"
    return f"{what}, {KINDS[kind]}"
