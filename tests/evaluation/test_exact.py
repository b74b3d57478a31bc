"""Evaluation rows equal an independent computation from the same checkpoint.

The oracle shares no code with posenc: it reads the checkpoint file with torch alone, computes the
Transformer in float64 from the formulas, and cuts the tokens into windows itself.
"""

import json
import math
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from posenc.cli import main
from posenc.jobs.exit_codes import FINISHED
from posenc.jobs.job import main as job
from posenc.runs.loss_arrays import position_array_name
from posenc.runs.run_directory import RunDirectory

HEADS = 4
EOS = 256  # the end-of-text token of the byte tokenizer
LENGTHS = [24, 30, 61]
LONGEST = max(LENGTHS)
Scored = Iterator[tuple[int, int]]
"""For every scored token: its index, and the index of the first token of its window."""


def load_weights(run: RunDirectory) -> dict[str, Tensor]:
    (newest, *_) = sorted(run.checkpoints.glob("step-*.ckpt"), reverse=True)
    state = torch.load(newest, weights_only=True)["state_dict"]
    return {key.removeprefix("model."): value.double() for key, value in state.items()}


def layer_norm(x: Tensor, weight: Tensor) -> Tensor:
    centered = x - x.mean(-1, keepdim=True)
    return centered / (centered.square().mean(-1, keepdim=True) + 1e-5).sqrt() * weight


def rotated(x: Tensor) -> Tensor:
    """RoPE with complex numbers, for the pairs of channels i and i + d/2 and base 10000."""
    half = x.shape[-1] // 2
    frequencies = torch.tensor([10000.0 ** (-i / half) for i in range(half)], dtype=torch.float64)
    rotation = torch.polar(
        torch.ones(x.shape[-2], half, dtype=torch.float64),
        torch.arange(x.shape[-2], dtype=torch.float64)[:, None] * frequencies,
    )
    result = torch.complex(x[..., :half], x[..., half:]) * rotation
    return torch.cat([result.real, result.imag], dim=-1)


def window_losses(
    weights: dict[str, Tensor], encoding: str, inputs: Tensor, targets: Tensor
) -> Tensor:
    """Return the losses [n, T] of n windows of one length."""
    length, embedding = inputs.shape[1], weights["embedding.weight"]
    width = embedding.shape[1]
    x = embedding[inputs] * math.sqrt(width)
    future = torch.ones(length, length).triu(1).bool()
    distance = torch.arange(length)[:, None] - torch.arange(length)[None, :]
    for layer in range(2):
        w = {k.split(".", 2)[2]: v for k, v in weights.items() if k.startswith(f"blocks.{layer}.")}
        normed = layer_norm(x, w["attention_norm.weight"])
        q, k, v = (
            part.unflatten(-1, (HEADS, -1)).transpose(1, 2)
            for part in (normed @ w["attention.qkv.weight"].T).chunk(3, dim=-1)
        )
        if encoding == "rope":
            q, k = rotated(q), rotated(k)
        scores = q @ k.mT / math.sqrt(width / HEADS)
        if encoding == "alibi":
            slopes = torch.tensor([2.0 ** (-2 * (h + 1)) for h in range(HEADS)]).double()
            scores = scores - slopes[:, None, None] * distance
        attended = scores.masked_fill(future, -math.inf).softmax(-1) @ v
        x = x + attended.transpose(1, 2).flatten(2) @ w["attention.out.weight"].T
        up = layer_norm(x, w["feed_forward_norm.weight"]) @ w["feed_forward.up.weight"].T
        x = x + (up * 0.5 * (1 + torch.erf(up / math.sqrt(2)))) @ w["feed_forward.out.weight"].T
    logits = layer_norm(x, weights["norm.weight"]) @ embedding.T
    return logits.logsumexp(-1) - logits.gather(-1, targets[..., None])[..., 0]


def oracle(
    weights: dict[str, Tensor], encoding: str, tokens: Tensor, first: int, length: int
) -> tuple[float, int]:
    """Return sum and count of losses in windows of `length`; `first` is the first input."""
    total, count = 0.0, 0
    inputs = torch.cat([torch.tensor([first]), tokens[:-1]])
    whole = len(tokens) // length * length
    for part, size in ((slice(0, whole), length), (slice(whole, None), len(tokens) - whole)):
        if size:
            windows = (tensor[part].view(-1, size) for tensor in (inputs, tokens))
            for batch in zip(*(tensor.split(1 + 2**14 // size) for tensor in windows), strict=True):
                losses = window_losses(weights, encoding, *batch)
                total, count = total + losses.sum().item(), count + losses.numel()
    return total, count


def trained_run(run: RunDirectory) -> RunDirectory:
    assert job([str(run.path)]) == FINISHED, run.status().error
    return run


@pytest.mark.parametrize("encoding", ["rope", "alibi"])
def test_every_row_of_a_run_equals_the_oracle(
    small_run: Callable[..., RunDirectory], corpus: Path, encoding: str
) -> None:
    run = trained_run(small_run(f"encoding={encoding}", "evaluation.factors=[1,2.5,7]"))
    text = np.frombuffer((corpus / "validation.txt").read_bytes(), dtype=np.uint8)
    tokens = torch.cat([torch.from_numpy(text.astype(np.int64)), torch.tensor([EOS])])
    weights = load_weights(run)
    rows = {row["length"]: row for row in run.rows() if row["protocol"] == "nonoverlapping"}
    assert sorted(rows) == [24, 60, 168]
    for length, row in rows.items():
        total, count = oracle(weights, encoding, tokens, EOS, length)
        assert row["count"] == count == len(tokens)
        assert row["loss"] == pytest.approx(total / count, abs=1e-6)
        assert row["perplexity"] == pytest.approx(math.exp(total / count), rel=1e-5)
        assert row["bytes"] == len(text)
        assert row["perplexity_per_byte"] == pytest.approx(math.exp(total / len(text)), rel=1e-5)
        assert row["words"] == len((corpus / "validation.txt").read_text().split())


def nonoverlapping_targets(tokens: int, length: int, stride: int) -> Scored:
    return ((i, i - i % length) for i in range(tokens))


def sliding_targets(tokens: int, length: int, stride: int) -> Scored:
    """As in fairseq: `stride` targets at a time, with the length - stride tokens before them."""
    return ((i, max(0, i // stride * stride - (length - stride))) for i in range(tokens))


def last_k_targets(tokens: int, length: int, k: int) -> Scored:
    for end in range(length, tokens + 1, length):
        yield from ((i, end - length) for i in range(end - k, end))


def fixed_targets(tokens: int, length: int, targets: int) -> Scored:
    for end in range(LONGEST, tokens + 1, LONGEST):
        yield from ((i, end - length) for i in range(end - targets, end))


def score_one_at_a_time(
    weights: dict[str, Tensor], tokens: Tensor, scored: Scored
) -> tuple[float, int]:
    """Return sum and count of losses, with each token scored at the end of its own window."""
    inputs = torch.cat([torch.tensor([EOS]), tokens[:-1]])
    starts_by_length = defaultdict(list)
    for token, start in scored:
        starts_by_length[token + 1 - start].append(start)
    losses: list[float] = []
    for length, starts in starts_by_length.items():
        index = torch.tensor(starts)[:, None] + torch.arange(length)
        losses += window_losses(weights, "rope", inputs[index], tokens[index])[:, -1].tolist()
    return math.fsum(losses), len(losses)


@pytest.mark.parametrize(
    ("protocol", "parameters", "expected_targets"),
    [
        ("nonoverlapping", [], nonoverlapping_targets),
        ("by_position", [], nonoverlapping_targets),
        ("sliding", ["evaluation.stride=1"], sliding_targets),
        ("sliding", ["evaluation.stride=7"], sliding_targets),
        ("sliding", ["evaluation.stride=24"], sliding_targets),
        ("last_k", ["evaluation.k=1"], last_k_targets),
        ("last_k", ["evaluation.k=10"], last_k_targets),
        ("fixed_target", ["evaluation.targets=24"], fixed_targets),
        ("fixed_target", ["evaluation.targets=5"], fixed_targets),
    ],
)
def test_every_protocol_equals_scoring_one_token_at_a_time(
    protocol: str,
    parameters: list[str],
    expected_targets: Callable[[int, int, int], Scored],
    short_run: RunDirectory,
    short_tokens: Tensor,
) -> None:
    lengths = f"evaluation.lengths={LENGTHS}".replace(" ", "")
    overrides = [f"run={short_run.path}", f"evaluation={protocol}", lengths, *parameters]
    assert main(["evaluate", *overrides, "evaluation.batch_tokens=200"]) == 0
    weights = load_weights(short_run)
    parameter = int(parameters[0].partition("=")[2]) if parameters else None
    measured = {(r["protocol"], r["stride"], r["length"]): r for r in short_run.rows()}
    rows = [measured[protocol, parameter, length] for length in LENGTHS]
    for row in rows:
        scored = expected_targets(len(short_tokens), row["length"], parameter or 0)
        total, count = score_one_at_a_time(weights, short_tokens, scored)
        assert row["count"] == row["full_count"] == count
        assert row["loss"] == pytest.approx(total / count, abs=1e-6)
        assert row["coverage"] == pytest.approx(count / 398)
        assert (row["words"] is None) == (count < 398)


def test_the_loss_at_a_position_is_the_sum_over_the_tokens_there(
    short_run: RunDirectory, short_tokens: Tensor
) -> None:
    overrides = [f"run={short_run.path}", "evaluation=by_position", "evaluation.lengths=[61]"]
    assert main(["evaluate", *overrides]) == 0
    (row,) = [r for r in short_run.rows() if (r["protocol"], r["length"]) == ("by_position", 61)]
    arrays, weights = np.load(short_run.positions_file), load_weights(short_run)
    for position in (0, 1, 31, 32, 60):
        scored = ((i, i - position) for i in range(position, 398, 61))
        total, count = score_one_at_a_time(weights, short_tokens, scored)
        assert arrays[f"{position_array_name(row)}.count"][position] == count
        assert arrays[f"{position_array_name(row)}.sum"][position] == pytest.approx(total, abs=1e-5)


def test_losses_by_position_sum_to_the_row(small_run: Callable[..., RunDirectory]) -> None:
    run = trained_run(small_run())
    arrays = np.load(run.positions_file)
    for row in run.rows():
        prefix = f"{row['data']}.{row['split']}.{row['length']}"
        assert arrays[f"{prefix}.sum"].sum() == pytest.approx(row["sum"], rel=1e-12)
        assert arrays[f"{prefix}.count"].sum() == row["count"]
        assert len(arrays[f"{prefix}.sum"]) == row["length"]
        assert (np.diff(arrays[f"{prefix}.count"]) <= 0).all()


@pytest.mark.slow
@pytest.mark.parametrize("encoding", ["rope"])
def test_the_loss_on_wikitext_equals_the_oracle(
    small_run: Callable[..., RunDirectory],
    encoding: str,
    wikitext: Path,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """WikiText-103's validation set with word tokens: 217,646 of them, each scored once."""
    (tmp_path / "train.txt").write_text((wikitext / "test.txt").read_text()[:60_000])
    train = f"data.train={tmp_path}/train.txt"
    run = trained_run(small_run(f"encoding={encoding}", "tokenizer=word", train))
    monkeypatch.chdir(tmp_path)
    overrides = [f"run={run.path}", "data=text", f"data.validation={wikitext}/validation.txt"]
    overrides += ["evaluation.lengths=[250]", "evaluation.protocols=[nonoverlapping]"]
    assert main(["evaluate", *overrides]) == 0

    ids = json.loads(run.tokenizer_file.read_text())["model"]["vocab"]
    tokens = [
        ids.get(word, ids["<unk>"])
        for line in (wikitext / "validation.txt").read_text().split("\n")[:-1]
        for word in [*line.split(), "<eos>"]
    ]
    weights = load_weights(run)
    measured = [row for row in run.rows() if row["data"] != run.config().planned.fingerprint]
    assert sorted({row["length"] for row in measured}) == [250]
    for row in measured:
        total, count = oracle(weights, encoding, torch.tensor(tokens), ids["<eos>"], row["length"])
        assert row["count"] == count == 217_646
        assert row["loss"] == pytest.approx(total / count, abs=1e-6)
