"""What the page of a run says, from what was measured."""

from posenc.inspect.findings import Findings
from posenc.inspect.run.measure import Measured
from posenc.inspect.run.pictures import pictures
from posenc.inspect.run.summary import summaries

SECTIONS = {
    "attention": "Attention",
    "scores": "Scores within the trained range and past it",
    "rotations": "Rotary frequencies",
    "encoding": "What the encoding adds, and what was learned",
    "vectors": "Tokens beside positions",
    "equal": "Two equal tokens",
}


def findings(name: str, measured: Measured, train_length: int) -> Findings:
    """All tables and figures of the run of that name, and what does not apply to it."""
    return Findings(
        title=f"What training made of {name}",
        question=(
            f"Where does attention go in windows of L = {train_length} tokens, where past them, and"
            " what does the encoding do there?"
        ),
        sections=SECTIONS,
        tables=summaries(measured, train_length),
        pictures=pictures(measured, train_length),
        notes=measured.notes,
    )
