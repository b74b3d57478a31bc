"""The page of an experiment."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from html import escape

from posenc.report import html
from posenc.report.layout import document, figure
from posenc.report.reading import missing
from posenc.report.results import Results
from posenc.report.sections import sections

QUESTION = (
    "What does a positional encoding do to a Transformer language model, at the length that it was"
    " trained on and beyond it?"
)


def page(results: Results, made: Mapping[str, str | bytes]) -> str:
    """The page of an experiment; `made` are the other files of the report, by name."""
    figures: defaultdict[str, str] = defaultdict(str)
    for picture in results.pictures:
        title = f"<h3>{escape(picture.title)}</h3>\n" if figures[picture.section] else ""
        figures[picture.section] += title + figure(picture, made)
    experiment = results.experiment
    return document(
        experiment.about.get("title") or experiment.name,
        experiment.about.get("question") or QUESTION,
        sections(results, figures, made),
        _notice(missing(experiment)),
    )


def _notice(lines: Sequence[str]) -> str:
    if not lines:
        return ""
    return f'<div class="notice"><p>{escape(lines[0])}</p>{html.bullets(lines[1:])}</div>'
