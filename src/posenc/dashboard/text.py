"""What a dashboard says in words: the question, the claims and their verdicts."""

from posenc.report.collect import Experiment
from posenc.report.verdict_formats import verdicts_markdown
from posenc.report.verdicts import lines_of, summary


def verdicts_text(experiment: Experiment) -> str:
    """The claims with their verdicts as Markdown; empty for an experiment without claims."""
    verdicts = experiment.verdicts
    if not verdicts:
        return ""
    return f"**{summary(verdicts)}**\n\n{verdicts_markdown(lines_of(verdicts))}"


def about_text(experiment: Experiment) -> str:
    """The experiment's own question, conclusion and caution."""
    said = (experiment.about.get(key) for key in ("question", "conclude", "caution"))
    return "\n\n".join(text for text in said if text)


def title_of(experiment: Experiment) -> str:
    return experiment.about.get("title") or experiment.name
