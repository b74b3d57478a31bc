"""Independent solvers derive every answer from the symbols before it."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from omegaconf import DictConfig, OmegaConf

from posenc.config.components import build
from posenc.config.errors import ConfigError
from posenc.data.tasks.mqar import AssociativeRecall
from posenc.data.tasks.task import BOS, SeededRandom, Task

CONF = Path(__file__).resolve().parents[2] / "conf" / "data"
Symbols = Sequence[str]


def split(symbols: Symbols) -> tuple[list[str], list[str]]:
    """Return the symbols before and after the separator."""
    separator = list(symbols).index("=")
    return list(symbols[:separator]), list(symbols[separator + 1 :])


def solve_copy(symbols: Symbols) -> str:
    string, answered = split(symbols)
    return string[len(answered)]


def solve_reverse(symbols: Symbols) -> str:
    string, answered = split(symbols)
    for _ in answered:
        string.pop()
    return string.pop()


def solve_duplicate(symbols: Symbols) -> str:
    string, answered = split(symbols)
    return string[len(answered) % len(string)]


def solve_even_pairs(symbols: Symbols) -> str:
    string, _ = split(symbols)
    pairs = [a + b for a, b in pairwise(string)]
    return "0" if (pairs.count("01") + pairs.count("10")) % 2 == 0 else "1"


def solve_missing_duplicate(symbols: Symbols) -> str:
    string, _ = split(symbols)
    half = len(string) // 2
    blank = string.index("_")
    return string[blank + half] if blank < half else string[blank - half]


def solve_indirect_indexing(symbols: Symbols) -> str:
    string, (letter, shift) = split(symbols)
    assert string.count(letter) == 1
    assert int(shift) != 0 and string.index(letter) + int(shift) >= 0
    return string[string.index(letter) + int(shift)]


def solve_flip_flop(symbols: Symbols) -> str:
    bit = ""
    for instruction, value in zip(symbols[0:-1:2], symbols[1::2], strict=True):
        bit = value if instruction == "w" else bit
    assert symbols[-1] == "r"
    return bit


def solve_mqar(symbols: Symbols) -> str:
    values = dict(zip(symbols[0::2], symbols[1::2], strict=False))
    return values[symbols[-1]]


def solve_passkey(symbols: Symbols) -> str:
    """Return the symbol after the first occurrence of the longest repeated suffix (2-6 symbols)."""
    for size in range(6, 1, -1):
        question = list(symbols[-size:])
        for start in range(len(symbols) - size):
            if list(symbols[start : start + size]) == question:
                return symbols[start + size]
    raise AssertionError("no marker")


SOLVERS: dict[str, Callable[[Symbols], str]] = {
    "task_copy": solve_copy,
    "task_reverse": solve_reverse,
    "task_duplicate": solve_duplicate,
    "task_even_pairs": solve_even_pairs,
    "task_missing_duplicate": solve_missing_duplicate,
    "task_indirect_indexing": solve_indirect_indexing,
    "task_flip_flop": solve_flip_flop,
    "task_mqar": solve_mqar,
    "task_passkey": solve_passkey,
}


def build_task(name: str, **parameters: Any) -> Task:
    config = OmegaConf.load(CONF / f"{name}.yaml")
    assert isinstance(config, DictConfig)
    del config["defaults"]
    config.update(parameters)
    return build(config, name="data")


def test_every_task_has_a_solver() -> None:
    assert sorted(SOLVERS) == sorted(path.stem for path in CONF.glob("task_*.yaml"))


@pytest.mark.parametrize("name", SOLVERS)
def test_every_answer_follows_from_the_tokens_before_it(name: str) -> None:
    task = build_task(name)
    for size in [*range(1, 13), 40]:
        for number in range(20):
            tokens, scored = task.generate(SeededRandom(number), size)
            symbols = [task.symbols[token] for token in tokens]
            assert len(symbols) == task.sequence_length(size)
            assert scored.any() and BOS not in tokens
            for position in np.flatnonzero(scored):
                assert SOLVERS[name](symbols[:position]) == symbols[position]


@pytest.mark.parametrize("name", SOLVERS)
def test_chance_is_the_accuracy_of_guessing_among_the_answers_that_occur(name: str) -> None:
    task = build_task(name)
    examples = (task.generate(SeededRandom(number), 4) for number in range(1500))
    answers = {int(token) for tokens, scored in examples for token in tokens[scored]}
    num_impossible = name == "task_indirect_indexing"  # the letter in the question
    assert task.chance == pytest.approx(1 / (len(answers) - num_impossible))


def test_chance_is_unknown_without_a_vocabulary() -> None:
    assert build_task("task_passkey", vocab_size=None).chance is None


@pytest.mark.parametrize(
    "name", [name for name in SOLVERS if name not in ("task_flip_flop", "task_mqar")]
)
def test_only_the_answer_at_the_end_is_scored(name: str) -> None:
    task = build_task(name)
    for size in (1, 2, 9):
        scored = task.generate(SeededRandom(size), size).scored
        assert scored.tolist() == sorted(scored.tolist())


def test_flip_flop_scores_the_bits_of_reads() -> None:
    symbols, scored = generated_symbols(build_task("task_flip_flop"), 200)
    assert symbols[0] == "w" and symbols[-2] == "r"
    reads = [position for position, symbol in enumerate(symbols) if symbol == "r"]
    assert reads == (np.flatnonzero(scored) - 1).tolist()
    ignored = symbols.count("i") / 199
    assert 0.7 < ignored < 0.9


def test_mqar_scores_the_values_of_queries() -> None:
    symbols, scored = generated_symbols(build_task("task_mqar"), 30)
    queries = [symbols[i - 1] for i in np.flatnonzero(scored)]
    assert set(queries) < set(symbols[0:60:2]) and len(set(symbols[0:60:2])) == len(queries) == 30
    blanks = [
        symbol for symbol, answer in zip(symbols[60:], scored[60:], strict=True) if not answer
    ]
    assert blanks.count(".") == len(blanks) - 30


def generated_symbols(task: Task, size: int) -> tuple[list[str], list[bool]]:
    tokens, scored = task.generate(SeededRandom("words"), size)
    return [task.symbols[token] for token in tokens], scored.tolist()


@pytest.mark.parametrize(("name", "answers"), [("task_even_pairs", 2), ("task_copy", 16)])
def test_all_answers_are_equally_likely(name: str, answers: int) -> None:
    task = build_task(name)
    last = [task.generate(SeededRandom(number), 7).tokens[-1] for number in range(2000)]
    counts = np.unique(last, return_counts=True)[1]
    expected = 2000 / answers
    assert len(counts) == answers
    assert (abs(counts - expected) < 5 * expected**0.5).all()


def test_a_passkey_is_hidden_at_every_depth() -> None:
    task = build_task("task_passkey")
    depths = []
    for number in range(2000):
        tokens = task.generate(SeededRandom(number), 9).tokens.tolist()
        depths.append(tokens.index(tokens[-7]))
    counts = np.bincount(depths, minlength=10)
    assert (abs(counts - 200) < 5 * 200**0.5).all()


def test_queries_follow_the_power_law() -> None:
    """With a single pair, the slot of its query has p(slot) ~ slot^(power - 1)."""
    task = build_task("task_mqar", pair_tokens=12, power=0.5)
    assert isinstance(task, AssociativeRecall)
    examples = [task.generate(SeededRandom(number), 1) for number in range(2000)]
    slots = [int(np.flatnonzero(example.scored)[0] - 3) // 2 for example in examples]
    expected = np.arange(1, 6) ** -0.5
    expected *= 2000 / expected.sum()
    assert (abs(np.bincount(slots, minlength=5) - expected) < 5 * expected**0.5).all()


@pytest.mark.parametrize("name", SOLVERS)
def test_sequence_lengths_grow_with_the_size(name: str) -> None:
    task = build_task(name)
    lengths = [task.sequence_length(size) for size in range(1, 8)]
    assert lengths == sorted(set(lengths))
    for size, length in enumerate(lengths, start=1):
        longest = lengths[size] - 1 if size < 7 else length
        assert task.largest_size(length) == task.largest_size(longest) == size
    with pytest.raises(ConfigError, match=rf"length {lengths[0] - 1}.*{lengths[0]} tokens"):
        task.largest_size(lengths[0] - 1)


def test_more_pairs_than_keys_are_an_error() -> None:
    with pytest.raises(ConfigError, match=r"length 80 has 5 pairs.*only 4 distinct keys.*keys=5"):
        build_task("task_mqar", keys=4).largest_size(80)
    assert build_task("task_mqar", keys=5).largest_size(80) == 5


@pytest.mark.parametrize(
    ("name", "parameters", "message"),
    [
        ("task_copy", {"examples": 0}, "examples=0"),
        ("task_copy", {"alphabet_size": 1}, "alphabet_size=1"),
        ("task_missing_duplicate", {"alphabet_size": 1}, "alphabet_size=1"),
        ("task_indirect_indexing", {"shift": 0}, "shift=0"),
        ("task_flip_flop", {"ignore": 1.5}, r"ignore=1\.5"),
        ("task_mqar", {"pair_tokens": 5}, "pair_tokens=5"),
        ("task_mqar", {"power": 0}, "power=0"),
        ("task_passkey", {"vocab_size": 22}, "vocab_size=22.*23"),
        ("task_passkey", {"key_length": 0}, "key_length=0"),
    ],
)
def test_an_invalid_parameter_is_an_error(
    name: str, parameters: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        build_task(name, **parameters)


@pytest.mark.parametrize("name", SOLVERS)
def test_every_parameter_changes_the_task(name: str) -> None:
    config = OmegaConf.load(CONF / f"{name}.yaml")
    assert isinstance(config, DictConfig)
    changes = {
        str(key): _changed(value)
        for key, value in config.items()
        if key not in ("defaults", "_target_")
    }
    task = build_task(name)
    tasks = {key: build_task(name, **{key: value}) for key, value in changes.items()}
    digests = {task.digest(), *(other.digest() for other in tasks.values())}
    assert len(digests) == 1 + len(changes)
    for key, other in tasks.items():
        assert key == "examples" or sample(task) != sample(other)


def sample(task: Task) -> list[list[int]]:
    return [task.generate(SeededRandom(number), 8).tokens.tolist() for number in range(30)]


def _changed(value: Any) -> Any:
    return value / 2 if isinstance(value, float) else value + 2


def test_generated_sequences_never_change() -> None:
    """Different sequences would be a different dataset, which needs a different digest."""
    assert SeededRandom("a", 1).integers(10, 6).tolist() == [0, 8, 9, 2, 2, 2]
    assert SeededRandom("a", 1).choice(6, 6).tolist() == [0, 5, 3, 4, 1, 2]
    assert {name: build_task(name).digest()[:8] for name in SOLVERS} == {
        "task_copy": "cd3c9aaa",
        "task_reverse": "4726b4b4",
        "task_duplicate": "fe0fa4d8",
        "task_even_pairs": "2fa8cb8d",
        "task_missing_duplicate": "4f3a974c",
        "task_indirect_indexing": "b8553ad8",
        "task_flip_flop": "48d05e9d",
        "task_mqar": "12cd8aac",
        "task_passkey": "91d27665",
    }
