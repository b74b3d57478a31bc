"""The two sides of a clause, paired by seed, if they are comparable.

With the same seed, every encoding is trained on the same tokens in the same order and scored on the
same tokens, so effects of the seed that both sides share cancel in their difference. Sides with
different training data are not compared, nor are sides that were scored on different tokens, except
in the cases that `check_comparable` and `_check_pair` allow.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from posenc.evaluation.protocols import PROTOCOLS
from posenc.report.claim import Clause
from posenc.report.claim_sides import Length, Ngram, Side, Value
from posenc.report.confidence import MIN_SEEDS
from posenc.report.experiment import MACHINE_KEYS, Experiment, Run
from posenc.report.outcome import NoVerdictError
from posenc.report.run_labels import training_settings
from posenc.report.run_samples import (
    Sample,
    evaluation_length,
    lengths_in_common,
    read_sample,
    runs_by_seed,
    train_command,
)
from posenc.runs.evaluation_rows import budget_ran_out

CORPUS_KEYS = ("data", "split")
TOKEN_KEYS = ("count", "tokens_hash")
WINDOW_KEYS = ("protocol", "stride")


def paired_samples(
    clause: Clause, train_length: int, experiment: Experiment
) -> tuple[dict[int, tuple[float, float]], NoVerdictError | None]:
    """Return both sides' values by seed, and an error if there are too few seeds for a verdict.

    Raises NoVerdictError if no seed has values for both sides or the sides are not comparable.
    """
    values = clause.values
    runs = [runs_by_seed(value, train_length, experiment) for value in values]
    _check_same_training(values, [next(iter(by_seed.values())) for by_seed in runs])
    common_lengths = lengths_in_common(list(zip(values, runs, strict=True)))
    longest = max(common_lengths, default=None)
    lengths = [evaluation_length(value, train_length, longest) for value in values]
    pairs: dict[int, tuple[float, float]] = {}
    errors: list[NoVerdictError] = []
    for seed in sorted(set.intersection(*map(set, runs))):
        measured = zip(values, (by_seed[seed] for by_seed in runs), lengths, strict=True)
        try:
            samples = [
                read_sample(*arguments, common_lengths, experiment) for arguments in measured
            ]
            pairs[seed] = _pair(clause, samples, train_length)
        except NoVerdictError as error:
            if error.outcome == "not comparable":
                raise
            errors.append(error)
    if len(pairs) >= MIN_SEEDS:
        return pairs, None
    problem = errors[0] if errors else _too_few_seeds(list(pairs), experiment)
    if not pairs:
        raise problem
    return pairs, problem


def _check_same_training(values: Sequence[Value], runs: Sequence[Run]) -> None:
    """Raise NoVerdictError if runs differ in a training setting that no selector contains."""
    selected = {key for value in values for key in value.selector}
    for run in runs[1:]:
        first, other = training_settings(runs[0].config), training_settings(run.config)
        for path in sorted(first.keys() | other.keys()):
            prefixes = {path, path.partition(".")[0]}
            if first.get(path) != other.get(path) and not prefixes & selected:
                raise NoVerdictError(
                    "not comparable",
                    f"{runs[0].label} and {run.label} were trained with {path}={first.get(path)}"
                    f" and {other.get(path)}; add {path} to the claim to compare them",
                )


def _check_same_machine(runs: Sequence[Run]) -> None:
    """Raise NoVerdictError if runs whose speed or memory is compared ran on different machines."""
    for run in runs[1:]:
        first, other = runs[0].status.resolved, run.status.resolved
        for key in MACHINE_KEYS:
            if first.get(key) != other.get(key):
                raise NoVerdictError(
                    "not comparable",
                    f"{runs[0].name} and {run.name} were trained with {key} {first.get(key)} and"
                    f" {other.get(key)}; speed and memory depend on it",
                )


def _pair(clause: Clause, samples: Sequence[Sample], train_length: int) -> tuple[float, float]:
    """Return the numbers of both sides for one seed. Raises NoVerdictError if not comparable."""
    count = len(clause.left.values)
    left, right = samples[:count], samples[count:]
    check_comparable(left, right)
    if clause.left.values[0].quantity.source == "timing":
        _check_same_machine([sample.run for sample in samples])
    return _number(clause.left, left), _right_number(clause, left, right, train_length)


def _number(side: Side, samples: Sequence[Sample]) -> float:
    return side.combine([s.number for s in samples], [s.length for s in samples])


def _right_number(
    clause: Clause, left: Sequence[Sample], right: Sequence[Sample], train_length: int
) -> float:
    side = clause.right
    if isinstance(side, Length):
        return float(side.num_tokens(train_length))
    if isinstance(side, float):
        return clause.scale.to_scale(side)
    if isinstance(side, Ngram):
        return ngram_loss(side, left[0])
    return clause.scale.multiply(_number(side, right), clause.times)


def _too_few_seeds(complete_seeds: Sequence[int], experiment: Experiment) -> NoVerdictError:
    # The command adds the fewest new seeds that allow a verdict.
    unused = [seed for seed in range(1, 2 * MIN_SEEDS + 1) if seed not in complete_seeds]
    seeds = sorted([*complete_seeds, *unused[: MIN_SEEDS - len(complete_seeds)]])
    command = train_command(experiment.command, {"seed": seeds})
    return NoVerdictError(
        "too few seeds",
        f"{len(complete_seeds)} of the {MIN_SEEDS} required seeds have results for both sides; run"
        f" {command}",
    )


def check_comparable(left: Sequence[Sample], right: Sequence[Sample]) -> None:
    """Raise NoVerdictError unless the samples of two sides can be compared; `right` may be empty.

    Within each side, all samples of a change or trend must be comparable with the first one. Then
    the sides are checked sample by sample. Sides that are changes or trends may score different
    tokens if their protocols or strides differ, because each change or trend is measured within its
    own side.
    """
    for first, *others in filter(None, (left, right)):
        for other in others:
            _check_pair(first, other)
    for a, b in zip(left, right, strict=False):
        is_change_or_trend = len(left) > 1
        windows_differ = _differing_key(a.row, b.row, WINDOW_KEYS) is not None
        _check_pair(a, b, tokens_may_differ=is_change_or_trend and windows_differ)


def ngram_loss(ngram: Ngram, sample: Sample) -> float:
    """Return an n-gram model's loss on the text of a sample.

    The model was trained on the tokens of the sample's run. Raises NoVerdictError if the run has no
    such n-gram model, if the model was scored on another text, or if the sample is from an
    intermediate checkpoint. An n-gram model scores every token, so the sample must have the same
    token count.
    """
    run, row = sample.run, sample.row or {}
    if row.get("at_tokens") is not None:
        raise NoVerdictError(
            "not comparable",
            f"{ngram.name} was trained on all {run.config['tokens']} training tokens of"
            f" {run.name}, not on the first {row['at_tokens']}; compare it at the end of training",
        )
    rows = [r for r in run.ngrams if ngram.order in (None, r["order"])]
    if not rows:
        orders = ", ".join(str(r["order"]) for r in run.ngrams) or "none"
        raise NoVerdictError(
            "not measured",
            f"{run.name} has no row for {ngram.name} in ngrams.json (orders: {orders});"
            " rerun its command with a larger ngram_order (at most L + 1)",
        )
    same_text = [r for r in rows if _differing_key(r, row, CORPUS_KEYS) is None]
    if not same_text:
        key = _differing_key(rows[0], row, CORPUS_KEYS) or "data"
        raise NoVerdictError(
            "not comparable",
            f"{ngram.name} and {run.name} were scored on different text"
            f" ({key} {_short_hash(rows[0][key])} and {_short_hash(row.get(key))})",
        )
    best = min(same_text, key=lambda r: r["loss"])
    if best["count"] != row["count"]:
        raise NoVerdictError(
            "not comparable",
            f"{ngram.name} was scored on {best['count']} tokens and {run.name} on {row['count']}",
        )
    return best["loss"]


def _check_pair(left: Sample, right: Sample, *, tokens_may_differ: bool = False) -> None:
    """Raise NoVerdictError if two samples differ in training data, text or scored tokens.

    The samples may be scored on different tokens of the same text if `tokens_may_differ`, or if
    both are from the same run and no evaluation budget ran out: most protocols that score only the
    end of each window score different tokens at each length. The latter case excludes fixed_target,
    which scores the same tokens at every length.
    """
    if left.run is not right.run:
        a, b = (sample.run.config["planned"]["fingerprint"] for sample in (left, right))
        if a != b:
            raise NoVerdictError(
                "not comparable",
                "the compared runs were trained on different data"
                f" ({_short_hash(a)} and {_short_hash(b)})",
            )
    if left.row is None or right.row is None:
        return
    complete = not (budget_ran_out(left.row) or budget_ran_out(right.row))
    protocol = PROTOCOLS.get(left.row["protocol"])
    has_fixed_targets = protocol is not None and protocol.needs_longest_length
    if left.run is right.run and complete and not has_fixed_targets:
        tokens_may_differ = True
    key = _differing_key(
        left.row, right.row, CORPUS_KEYS if tokens_may_differ else CORPUS_KEYS + TOKEN_KEYS
    )
    if key is not None:
        a, b = left.row.get(key), right.row.get(key)
        raise NoVerdictError(
            "not comparable",
            "the compared rows were scored on different tokens"
            f" ({key} {_short_hash(a)} and {_short_hash(b)})",
        )


def _differing_key(
    left: Mapping[str, Any] | None, right: Mapping[str, Any] | None, keys: Sequence[str]
) -> str | None:
    """Return the first of `keys` in which two rows differ, or None."""
    rows = left or {}, right or {}
    return next((key for key in keys if rows[0].get(key) != rows[1].get(key)), None)


def _short_hash(value: Any) -> Any:
    """Return the first 12 digits of a hash, and other values unchanged."""
    return value[:12] if isinstance(value, str) else value
