"""A task as a dataset: training batches, evaluation examples and errors."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from omegaconf import DictConfig, OmegaConf

from posenc.config.components import build
from posenc.config.compose import compose
from posenc.config.errors import ConfigError
from posenc.config.steps import TrainingSteps
from posenc.data.build_data import build_data, data_source, evaluation_data, saved_task
from posenc.data.dataset import IGNORE_INDEX, Dataset
from posenc.data.tasks.copy import Copy
from posenc.data.tasks.mqar import AssociativeRecall
from posenc.data.tasks.passkey import Passkey
from posenc.data.tasks.task import Example, SeededRandom, Task
from posenc.data.tasks.task_data import TaskData
from posenc.data.tokenizers import Tokenizer, load_tokenizer
from posenc.data.tokenizers.byte import ByteTokenizer
from posenc.data.tokenizers.symbols import SymbolTokenizer
from posenc.training.batches import micro_batch_loader

CONF = Path(__file__).resolve().parents[2] / "conf" / "data"
TASKS = ["copy", "mqar", "flip_flop", "passkey"]


def build_task_data(name: str, **parameters: int) -> TaskData:
    config = OmegaConf.load(CONF / f"task_{name}.yaml")
    assert isinstance(config, DictConfig)
    del config["defaults"]
    config.update(parameters)
    task = build(config, name="data")
    return TaskData(task, SymbolTokenizer(task.symbols))


def test_training_and_evaluation_use_the_same_ids_of_a_tokenizer() -> None:
    class EndsWithLastId(SymbolTokenizer):
        """The id of the end of a document is the last one, not 0."""

    data = build_task_data("copy")
    tokenizer = EndsWithLastId(data.task.symbols)
    tokenizer.eos_id = tokenizer.vocab_size - 1
    shifted = TaskData(data.task, tokenizer)
    inputs, targets = data.training_batches(48, seed=3).batch(0, 4)
    shifted_inputs, shifted_targets = shifted.training_batches(48, seed=3).batch(0, 4)
    ids = torch.tensor([tokenizer.eos_id, *range(tokenizer.eos_id)])
    assert torch.equal(shifted_inputs, ids[inputs])
    answers = targets != IGNORE_INDEX
    assert torch.equal(shifted_targets[answers], ids[targets[answers]])
    examples = shifted.examples("validation", 48)
    assert np.array_equal(examples.tokens, ids.numpy()[data.examples("validation", 48).tokens])
    assert examples.bos_id == tokenizer.eos_id


def test_a_task_selects_its_tokenizer_and_its_evaluation() -> None:
    config = compose("train", ["data=task_copy"])
    data = build_data(config, print)
    assert data.vocab_size == 18 and data.fingerprint == build_task_data("copy").fingerprint
    assert config.evaluation.protocols == ["tasks"]


@pytest.mark.parametrize("name", TASKS)
def test_only_answers_are_targets(name: str) -> None:
    data = build_task_data(name)
    inputs, targets = data.training_batches(48, seed=3).batch(0, 40)
    assert inputs.shape == targets.shape == (40, 48)
    lengths = {data.task.sequence_length(size) for size in range(1, 49)}
    rows = zip(inputs.tolist(), targets.tolist(), strict=True)
    for number, (row_inputs, row_targets) in enumerate(rows):
        random = SeededRandom("train", 3, number)
        size = 1 + random.integer(data.task.largest_size(48))
        scored = data.task.generate(random, size).scored.tolist()
        assert [target != IGNORE_INDEX for target in row_targets[: len(scored)]] == scored
        assert row_inputs[0] == 0 and set(row_targets) != {IGNORE_INDEX}
        for position, target in enumerate(row_targets[:-1]):
            assert target in (IGNORE_INDEX, row_inputs[position + 1])
        if 0 in row_inputs[1:]:
            end = row_inputs.index(0, 1)
            assert end - 1 in lengths and set(row_inputs[end:]) == {0}
            assert set(row_targets[end - 1 :]) == {IGNORE_INDEX}


@pytest.mark.parametrize(("name", "length"), [("copy", 24), ("even_pairs", 12), ("passkey", 20)])
def test_sizes_are_uniform_from_one_to_the_largest(name: str, length: int) -> None:
    data = build_task_data(name)
    _, targets = data.training_batches(length, seed=1).batch(0, 3000)
    ends = [int(row.nonzero()[-1]) + 1 for row in (targets != IGNORE_INDEX)]
    largest = data.task.largest_size(length)
    assert set(ends) == {data.task.sequence_length(size) for size in range(1, largest + 1)}
    expected = 3000 / largest
    assert all(abs(count - expected) < 5 * expected**0.5 for count in Counter(ends).values())


@pytest.mark.parametrize("name", TASKS)
def test_a_batch_is_a_function_of_seed_and_step(name: str) -> None:
    data = build_task_data(name)
    whole = data.training_batches(40, seed=1).batch(0, 12)
    parts = [
        build_task_data(name).training_batches(40, seed=1).batch(step, 4) for step in (2, 1, 0)
    ]
    for side in (0, 1):
        assert torch.equal(torch.cat([part[side] for part in reversed(parts)]), whole[side])
    assert not torch.equal(data.training_batches(40, seed=2).batch(0, 12)[0], whole[0])
    assert not torch.equal(data.training_batches(40, seed=1).batch(1, 12)[0], whole[0])


def test_resuming_continues_with_the_same_micro_batches() -> None:
    batches = build_task_data("copy").training_batches(24, seed=5)
    steps = TrainingSteps(4, sequences=6, micro_batch_size=2)
    whole, rest = (
        list(micro_batch_loader(batches, steps, 0)),
        list(micro_batch_loader(batches, steps, 3)),
    )
    assert (len(whole), len(rest)) == (12, 3)
    for expected, resumed in zip(whole[-3:], rest, strict=True):
        assert all(np.array_equal(a, b) for a, b in zip(expected, resumed, strict=True))
    for first in range(0, 12, 3):
        micro_batches = whole[first : first + 3]
        scored = sum(int((targets != IGNORE_INDEX).sum()) for _, targets, _ in micro_batches)
        assert {count for *_, count in micro_batches} == {scored / 3}


def test_evaluation_examples_are_fixed_as_large_as_possible_and_differ_between_splits() -> None:
    data = build_task_data("copy", examples=50)
    trained = {tuple(row) for row in data.training_batches(33, seed=1).batch(0, 3000)[0].tolist()}
    splits = []
    for split in ("train", "validation", "test"):
        tokens, scored, bos_id = data.examples(split, 34)
        assert tokens.shape == scored.shape == (50, 33) and bos_id == 0
        assert np.array_equal(tokens, build_task_data("copy", examples=50).examples(split, 34)[0])
        splits.append({tuple(row) for row in tokens.tolist()})
    assert len(splits[0] | splits[1] | splits[2]) == 150
    evaluated = splits[1] | splits[2]
    assert not evaluated & {(*row[1:], 0) for row in trained}
    assert not {row[:16] for row in evaluated} & {row[1:17] for row in trained}


def test_longer_lengths_have_longer_sequences() -> None:
    data = build_task_data("reverse")
    assert [data.examples("validation", n).tokens.shape[1] for n in (9, 10, 36)] == [9, 9, 35]


def test_the_validation_batch_is_fixed_and_not_trained_on() -> None:
    data = build_task_data("copy")
    inputs, targets = data.validation_batch(33, 3300)
    assert len(inputs) == 100
    assert torch.equal(inputs, build_task_data("copy").validation_batch(33, 3300)[0])
    trained = {tuple(row) for row in data.training_batches(33, seed=1).batch(0, 3000)[0].tolist()}
    long = [tuple(row) for row in inputs.tolist() if row[18] != 0]
    assert long and not trained & set(long)
    assert (targets != IGNORE_INDEX).any(dim=1).all()


def test_a_symbol_tokenizer_is_the_same_after_saving_and_loading(tmp_path: Path) -> None:
    data = build_task_data("indirect_indexing")
    data.tokenizer.save(tmp_path / "tokenizer.json")
    tokenizer = load_tokenizer(tmp_path / "tokenizer.json")
    assert tokenizer.digest() == data.tokenizer.digest()
    text = "3 0 2 5 = 5 -2 0"
    (ids,) = tokenizer.encode_documents([text])
    assert ids.tolist() == [5, 2, 4, 7, 1, 7, 34, 2, 0]
    assert tokenizer.decode(ids.tolist()) == text
    with pytest.raises(ValueError, match="unknown symbols x"):
        list(tokenizer.encode_documents(["3 x"]))


def test_a_language_model_is_evaluated_on_passkeys_in_its_own_tokens() -> None:
    task = Passkey(examples=40, vocab_size=None, filler_length=8, marker_length=2, key_length=3)
    data = evaluation_data(_node(task), ByteTokenizer(), _run_config(), print)
    tokens, _, bos_id = data.examples("validation", 40)
    assert bos_id == 256 and tokens.min() >= 0 and tokens.max() <= 255
    assert len(np.unique(tokens)) > 150
    other = evaluation_data(_node(task), ShiftedByteTokenizer(), _run_config(), print)
    shifted = other.examples("validation", 40)
    assert shifted.bos_id == 0
    assert np.array_equal(shifted.tokens - 1, tokens)
    assert other.fingerprint != data.fingerprint


def test_a_language_model_recalls_random_tokens_of_its_vocabulary() -> None:
    task = AssociativeRecall(examples=60, keys=None, values=None, pair_tokens=8, power=1.0)
    data = evaluation_data(_node(task), ByteTokenizer(), _run_config(), print)
    tokens, scored, bos_id = data.examples("validation", 80)
    assert bos_id == 256 and len(np.unique(tokens)) > 250
    for sequence, answers in zip(tokens.tolist(), scored, strict=True):
        pairs = dict(zip(sequence[:20:2], sequence[1:20:2], strict=True))
        assert len(pairs) == 10 and not set(pairs) & set(pairs.values())
        assert answers.sum() == 10 and answers[20:].sum() == 10
        assert all(pairs[sequence[i - 1]] == sequence[i] for i in np.flatnonzero(answers))
    first_keys = [sequence[0] for sequence in tokens.tolist()]
    assert len(set(first_keys)) > 40  # drawn anew for each sequence
    for length, pair_tokens in ((1024, 10), (4096, 34)):
        with pytest.raises(ConfigError, match=rf"127 .* keys; set data\.pair_tokens={pair_tokens}"):
            data.examples("validation", length)
        assert length // pair_tokens <= 127 < length // (pair_tokens - 2)


class ShiftedByteTokenizer(ByteTokenizer):
    """Bytes with ids from 1 to 256, after the end-of-text token 0."""

    kind = "shifted"
    eos_id = 0


def _node(task: Task) -> DictConfig:
    target = f"{type(task).__module__}.{type(task).__name__}"
    return OmegaConf.create({"_target_": target, **vars(task)})


def _run_config() -> DictConfig:
    return OmegaConf.create({"modules": [], "cache_dir": "unused"})


@pytest.mark.parametrize(
    ("task", "tokenizer", "message"),
    [
        (Copy(examples=1, alphabet_size=4), ByteTokenizer(), "its own symbols.*task_passkey"),
        (
            Passkey(examples=1, vocab_size=64, filler_length=8, marker_length=2, key_length=3),
            ByteTokenizer(),
            r"data\.vocab_size=64.*null",
        ),
        (Copy(examples=1, alphabet_size=4), SymbolTokenizer("abc"), "6 symbols.*the 3"),
        (
            Passkey(examples=1, vocab_size=None, filler_length=999, marker_length=2, key_length=3),
            ByteTokenizer(),
            "filler_length",
        ),
    ],
)
def test_a_task_incompatible_with_the_run_is_an_error(
    task: Passkey | Copy, tokenizer: Tokenizer, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        evaluation_data(_node(task), tokenizer, _run_config(), print)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["data=task_copy", "tokenizer=byte"], "its own symbols.*tokenizer=symbols"),
        (["tokenizer=symbols"], "python_stdlib.*text"),
        (["data=task_passkey", "data.vocab_size=null"], r"data\.vocab_size=64"),
    ],
)
def test_incompatible_data_and_tokenizer_are_an_error(overrides: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build_data(compose("train", overrides), print)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda data: data.token_array("validation"), "'copy'.*evaluation=tasks"),
        (lambda data: data.check_length("validation", 2), "length 2 is too short.*3 tokens"),
        (lambda data: data.check_length("validation", 10**10), "more than 268,435,456 tokens"),
        (lambda data: data.training_batches(2, 1), "length 2 is too short.*3 tokens"),
    ],
)
def test_a_task_refuses_protocols_for_text_and_short_lengths(
    call: Callable[[Dataset], object], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        call(build_task_data("copy"))


@pytest.mark.parametrize("size", [2**18 + 1, 10**12])
def test_a_huge_parameter_is_refused_before_anything_is_generated(size: int) -> None:
    with pytest.raises(ConfigError, match=f"alphabet_size={size} must be at most 262,144"):
        build_task_data("copy", alphabet_size=size)


@pytest.mark.parametrize("changes", [{"vocab_size": None}, {"vocab_size": 10**12}])
def test_an_edited_task_is_not_that_of_the_run(changes: dict[str, Any]) -> None:
    config = compose("train", ["data=task_passkey"])
    data = data_source(config)
    assert isinstance(data, Dataset)
    planned = {"fingerprint": data.fingerprint}
    saved = OmegaConf.to_container(config.data)
    assert isinstance(saved, dict)
    assert saved_task({"data": saved, "planned": planned}) is not None
    assert saved_task({"data": {**saved, **changes}, "planned": planned}) is None


def test_the_digest_of_a_custom_task_covers_what_its_answers_are() -> None:
    """Both classes generate the same tokens."""

    class AllScored(Copy):
        def generate(self, random: SeededRandom, size: int) -> Example:
            example = super().generate(random, size)
            return example._replace(scored=np.ones(len(example.tokens), bool))

    class NoneScored(Copy):
        def generate(self, random: SeededRandom, size: int) -> Example:
            example = super().generate(random, size)
            return example._replace(scored=np.zeros(len(example.tokens), bool))

    tasks = [cls(examples=4, alphabet_size=8) for cls in (AllScored, NoneScored, Copy)]
    assert len({task.digest() for task in tasks}) == 3
