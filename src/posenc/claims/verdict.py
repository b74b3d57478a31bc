"""What came of a claim."""

from dataclasses import dataclass

from posenc.claims.comparisons import Outcome
from posenc.claims.intervals import Estimate


@dataclass(frozen=True)
class Finding:
    """What the seeds say about one comparison.

    `left` and `right` are means over `seeds` in `unit` (geometric where `ratio`), the right one
    with its factor. `difference` is left over right less 1 where `ratio`, else left less right; its
    deviation stays on the scale of comparison. `why` tells what an undecided comparison lacks.
    """

    says: str
    outcome: Outcome
    unit: str
    ratio: bool
    margin: float
    confidence: float
    seeds: tuple[int, ...] = ()
    left: float | None = None
    right: float | None = None
    difference: Estimate | None = None
    why: str | None = None


@dataclass(frozen=True)
class Verdict:
    """A claim at one training length; `train_length` is None where no run has one it is about."""

    says: str
    train_length: int | None
    published: str | None
    findings: tuple[Finding, ...]

    @property
    def outcome(self) -> Outcome:
        """Fails where one comparison fails, holds where all hold."""
        outcomes = {finding.outcome for finding in self.findings}
        if "fails" in outcomes:
            return "fails"
        return "undecided" if "undecided" in outcomes else "holds"

    @property
    def where(self) -> str:
        return "" if self.train_length is None else f"L = {self.train_length}"
