"""The windows of every protocol, and the settings that are rejected."""

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from posenc.cli import main
from posenc.evaluation.protocols import fixed_target, last_k, nonoverlapping, sliding
from posenc.runs.run_directory import RunDirectory


def test_one_command_runs_every_protocol_and_equal_targets_have_one_hash(
    short_run: RunDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    parameters = ["stride=3", "k=11", "targets=11", "lengths=[24,61]"]
    overrides = [f"run={short_run.path}", "evaluation=everything"]
    assert main(["evaluate", *overrides, *(f"evaluation.{p}" for p in parameters)]) == 0
    printed = capsys.readouterr().out
    for protocol in ("nonoverlapping", "by_position", "sliding", "last_k", "fixed_target"):
        assert printed.count(protocol) == 2
    assert "66.3%" not in printed and "16.6%" in printed  # 6 windows of 61, 11 tokens of each
    hashes = {
        (row["protocol"], row["length"]): row["tokens_hash"]
        for row in short_run.rows()
        if row["stride"] in (None, 3, 11)
    }
    whole = {hashes[name, n] for name in ("nonoverlapping", "sliding") for n in (24, 61)}
    assert len(whole) == 1
    assert hashes["fixed_target", 24] == hashes["fixed_target", 61] == hashes["last_k", 61]
    assert len({*whole, hashes["last_k", 24], hashes["last_k", 61]}) == 3


def scored_targets(spans: NDArray[np.int64]) -> list[int]:
    return [i for _, first, stop in spans.tolist() for i in range(first, stop)]


@pytest.mark.parametrize("tokens", [1, 5, 24, 25, 100, 398])
@pytest.mark.parametrize("length", [1, 5, 24])
def test_windows_score_each_token_once_and_do_not_exceed_the_length(
    tokens: int, length: int
) -> None:
    """Including texts shorter than a window, and a shorter last window."""
    every_token = list(range(tokens))
    assert scored_targets(nonoverlapping(tokens, length)) == every_token
    for stride in range(1, length + 1):
        spans = sliding(tokens, length, stride)
        assert scored_targets(spans) == every_token
        start, first, stop = spans.T
        assert (stop - start <= length).all() and (start >= 0).all()
        assert (np.minimum(first, length - stride) <= first - start).all()
        assert len(spans) <= 1 + math.ceil(max(0, tokens - length + stride) / stride)
        assert scored_targets(last_k(tokens, length, stride)) == [
            i for i in every_token[: tokens - tokens % length] if i % length >= length - stride
        ]
    assert np.array_equal(sliding(tokens, length, length), nonoverlapping(tokens, length))
    assert np.array_equal(fixed_target(tokens, length, 1, length), last_k(tokens, length, 1))


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["evaluation=sliding", "evaluation.stride=25"], "evaluation.stride=25 exceeds the"),
        (["evaluation=last_k", "evaluation.k=25"], "shortest evaluation length 24"),
        (["evaluation=fixed_target", "evaluation.targets=0"], "must be positive"),
        (["evaluation.stride=4"], "only used by the protocol sliding"),
        (["evaluation=sliding", "evaluation.stride=null"], "evaluation.stride is missing"),
        (["evaluation.protocols=[]"], "evaluation.protocols is empty"),
        (["evaluation.protocols=[sliding9]"], "unknown protocols: sliding9"),
        (
            ["evaluation.protocols=[by_position,by_position]"],
            "has duplicates: by_position",
        ),
        (["evaluation=last_k", "evaluation.k=2", "evaluation.lengths=[500]"], "398 tokens, fewer"),
        (["evaluation.budget_seconds=-1"], "must be positive"),
        (["evaluation.budget_tokens=1.5"], "must be an integer or null"),
    ],
)
def test_invalid_settings_give_one_error_message(
    overrides: list[str], message: str, short_run: RunDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    before = short_run.evaluation_file.read_bytes()
    assert main(["evaluate", f"run={short_run.path}", *overrides]) == 2
    printed = capsys.readouterr().err
    assert message in " ".join(printed.split()) and "Traceback" not in printed
    assert short_run.evaluation_file.read_bytes() == before
