"""The result of an experiment in a few sentences, at the beginning of its report."""

from collections.abc import Iterator, Sequence

from posenc.config.errors import plural
from posenc.report.conclusions import best_encodings, worse_than_trigram
from posenc.report.experiment import Experiment, Run
from posenc.report.judge import Verdict
from posenc.report.premises import Verdicts
from posenc.report.result_rows import ResultSet
from posenc.report.verdict_text import claim_outcomes, summary

MAX_NAMES = 3
"""The largest number of encodings that are named in a sentence."""


def finding(
    experiment: Experiment,
    verdicts: Verdicts,
    losses: Sequence[ResultSet],
    accuracies: Sequence[ResultSet],
) -> str:
    """Return how many premises and claims hold, and which encodings are best.

    `losses` are those of the main measurement, `accuracies` those of all tasks. Premises that do
    not hold and encodings that are worse than a trigram model come before the claims. Encodings are
    compared at the training length and at the longest one.
    """
    sentences = [
        *_debug_sentences(experiment.runs),
        *_premise_sentences(verdicts.premises),
        *_trigram_sentences(losses),
        *_claim_sentences(verdicts.claims),
        *_best_sentences(losses, accuracies),
    ]
    return " ".join(sentences)


def _debug_sentences(runs: Sequence[Run]) -> Iterator[str]:
    if any(run.config.get("debug") for run in runs):
        yield "These are debug runs; their results are not meaningful."


def _premise_sentences(premises: Sequence[Verdict]) -> Iterator[str]:
    outcomes = claim_outcomes(premises)
    unmet = [
        (outcome, group[0].claim.statement) for outcome, group in outcomes if outcome != "holds"
    ]
    if unmet:
        count = f"{len(unmet)} of {plural(len(outcomes), 'premise')} not met"
        if len({outcome for outcome, _ in unmet}) == 1:
            yield f"{count} ({unmet[0][0]}): {'; '.join(f'“{text}”' for _, text in unmet)}."
        else:
            yield f"{count}: {'; '.join(f'“{text}” ({outcome})' for outcome, text in unmet)}."
    elif outcomes:
        yield "The premise holds." if len(outcomes) == 1 else f"All {len(outcomes)} premises hold."


def _trigram_sentences(losses: Sequence[ResultSet]) -> Iterator[str]:
    for curves, _ in losses:
        if worse := worse_than_trigram(curves):
            subject = f"{len(worse)} of {plural(len(curves.curves), 'encoding')}"
            names = f" ({', '.join(worse)})" if len(worse) <= MAX_NAMES else ""
            yield f"L = {curves.train_length}: {subject} worse than the 3-gram model{names}."


def _claim_sentences(claims: Sequence[Verdict]) -> Iterator[str]:
    if claims:
        yield f"{plural(len(claim_outcomes(claims)), 'claim')}: {summary(claims)}."


def _best_sentences(losses: Sequence[ResultSet], accuracies: Sequence[ResultSet]) -> Iterator[str]:
    for curves, rows in accuracies:
        task = curves.measurement.data_name
        yield f"{task}, L = {curves.train_length}: {best_encodings(curves, rows)}"
    for curves, rows in [pair for pair in losses if not pair[0].swapped] or losses:
        yield f"{curves.setting}: {best_encodings(curves, rows)}"
