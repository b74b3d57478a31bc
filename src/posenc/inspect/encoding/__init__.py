"""An encoding's properties as measurements, without training."""

from collections.abc import Callable, Sequence

from posenc.inspect.encoding.subject import Subject
from posenc.inspect.findings import Findings, Table

QUESTION = "What is this positional encoding, before any training?"


def inspect(subjects: Sequence[Subject], report: Callable[[str], None]) -> Findings:
    """Everything measured of all subjects, side by side; `report` is told whose turn it is."""
    rows = []
    for subject in subjects:
        report(subject.label)
        weights = sum(parameter.numel() for parameter in subject.encoding.parameters())
        rows.append([subject.label, float(weights)])
    table = Table("cards", "cards", "Properties", ["encoding", "parameters"], rows)
    title = f"What {', '.join(s.label for s in subjects)} is"
    return Findings(title, QUESTION, {"cards": "Properties"}, [table], [])
