"""Every answer follows from what stands before it: a solver that reads symbols finds the same."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from omegaconf import DictConfig, OmegaConf

from posenc.config.components import build
from posenc.config.errors import ConfigError
from posenc.data.tasks.draws import Draws
from posenc.data.tasks.recall import AssociativeRecall
from posenc.data.tasks.task import BEGIN, Task

CONF = Path(__file__).resolve().parents[2] / "conf" / "data"
Words = Sequence[str]


def split(words: Words) -> tuple[list[str], list[str]]:
    """What stands before the separator, and what after it."""
    place = list(words).index("=")
    return list(words[:place]), list(words[place + 1 :])


def copied(words: Words) -> str:
    string, said = split(words)
    return string[len(said)]


def reversed_(words: Words) -> str:
    string, said = split(words)
    for _ in said:
        string.pop()
    return string.pop()


def twice(words: Words) -> str:
    string, said = split(words)
    return string[len(said)] if len(said) < len(string) else string[len(said) - len(string)]


def parity_of_changes(words: Words) -> str:
    string, _ = split(words)
    pairs = [a + b for a, b in pairwise(string)]
    return "0" if (pairs.count("01") + pairs.count("10")) % 2 == 0 else "1"


def missing(words: Words) -> str:
    string, _ = split(words)
    half = len(string) // 2
    place = string.index("_")
    return string[place + half] if place < half else string[place - half]


def indexed(words: Words) -> str:
    string, (letter, shift) = split(words)
    assert string.count(letter) == 1
    assert int(shift) != 0 and string.index(letter) + int(shift) >= 0
    return string[string.index(letter) + int(shift)]


def memory(words: Words) -> str:
    bit = ""
    for instruction, value in zip(words[0:-1:2], words[1::2], strict=True):
        bit = value if instruction == "w" else bit
    assert words[-1] == "r"
    return bit


def recalled(words: Words) -> str:
    values = dict(zip(words[0::2], words[1::2], strict=False))
    return values[words[-1]]


def passed(words: Words) -> str:
    """The token that followed what is at the end, of at least two tokens, where it first stood."""
    for size in range(6, 1, -1):
        question = list(words[-size:])
        for place in range(len(words) - size):
            if list(words[place : place + size]) == question:
                return words[place + size]
    raise AssertionError("no marker")


SOLVERS: dict[str, Callable[[Words], str]] = {
    "task_copy": copied,
    "task_reverse": reversed_,
    "task_duplicate": twice,
    "task_even_pairs": parity_of_changes,
    "task_missing_duplicate": missing,
    "task_indirect_indexing": indexed,
    "task_flip_flop": memory,
    "task_mqar": recalled,
    "task_passkey": passed,
}


def task(name: str, **knobs: Any) -> Task:
    config = OmegaConf.load(CONF / f"{name}.yaml")
    assert isinstance(config, DictConfig)
    del config["defaults"]
    config.update(knobs)
    return build(config, name="data")


def test_every_task_has_a_solver() -> None:
    assert sorted(SOLVERS) == sorted(path.stem for path in CONF.glob("task_*.yaml"))


@pytest.mark.parametrize("name", SOLVERS)
def test_every_answer_follows_from_what_stands_before_it(name: str) -> None:
    of = task(name)
    for size in [*range(1, 13), 40]:
        for number in range(20):
            tokens, scored = of.draw(Draws(number), size)
            words = [of.symbols[token] for token in tokens]
            assert len(words) == of.tokens(size)
            assert scored.any() and BEGIN not in tokens
            for place in np.flatnonzero(scored):
                assert SOLVERS[name](words[:place]) == words[place]


@pytest.mark.parametrize(
    "name", [name for name in SOLVERS if name not in ("task_flip_flop", "task_mqar")]
)
def test_the_answer_is_the_end_and_nothing_else_is_scored(name: str) -> None:
    of = task(name)
    for size in (1, 2, 9):
        scored = of.draw(Draws(size), size).scored
        assert scored.tolist() == sorted(scored.tolist())


def test_what_is_scored_of_reads_and_queries() -> None:
    of = task("task_flip_flop")
    words, scored = decoded(of, 200)
    assert words[0] == "w" and words[-2] == "r"
    reads = [place for place, word in enumerate(words) if word == "r"]
    assert reads == (np.flatnonzero(scored) - 1).tolist()
    ignored = words.count("i") / 199
    assert 0.7 < ignored < 0.9

    of = task("task_mqar")
    words, scored = decoded(of, 30)
    queries = [words[i - 1] for i in np.flatnonzero(scored)]
    assert set(queries) < set(words[0:60:2]) and len(set(words[0:60:2])) == len(queries) == 30
    blanks = [word for word, answer in zip(words[60:], scored[60:], strict=True) if not answer]
    assert blanks.count(".") == len(blanks) - 30


def decoded(of: Task, size: int) -> tuple[list[str], list[bool]]:
    tokens, scored = of.draw(Draws("decoded"), size)
    return [of.symbols[token] for token in tokens], scored.tolist()


@pytest.mark.parametrize(("name", "answers"), [("task_even_pairs", 2), ("task_copy", 16)])
def test_answers_are_as_likely_as_each_other(name: str, answers: int) -> None:
    of = task(name)
    drawn = [of.draw(Draws(number), 7).tokens[-1] for number in range(2000)]
    counts = np.unique(drawn, return_counts=True)[1]
    expected = 2000 / answers
    assert len(counts) == answers
    assert (abs(counts - expected) < 5 * expected**0.5).all()


def test_a_passkey_is_hidden_at_every_depth() -> None:
    of = task("task_passkey")
    depths = []
    for number in range(2000):
        tokens = of.draw(Draws(number), 9).tokens.tolist()
        depths.append(tokens.index(tokens[-7]))
    counts = np.bincount(depths, minlength=10)
    assert (abs(counts - 200) < 5 * 200**0.5).all()


def test_queries_come_by_the_power_law() -> None:
    """One key of one pair: the slot of its query has p(slot) ~ slot^(power - 1)."""
    of = task("task_mqar", pair_tokens=12, power=0.5)
    assert isinstance(of, AssociativeRecall)
    slots = [int(np.flatnonzero(of.draw(Draws(n), 1).scored)[0] - 3) // 2 for n in range(2000)]
    expected = np.arange(1, 6) ** -0.5
    expected *= 2000 / expected.sum()
    assert (abs(np.bincount(slots, minlength=5) - expected) < 5 * expected**0.5).all()


@pytest.mark.parametrize("name", SOLVERS)
def test_sequences_grow_with_their_size_and_fill_a_length(name: str) -> None:
    of = task(name)
    lengths = [of.tokens(size) for size in range(1, 8)]
    assert lengths == sorted(set(lengths))
    for size, length in enumerate(lengths, start=1):
        assert of.largest(length) == of.largest(lengths[size] - 1 if size < 7 else length) == size
    with pytest.raises(ConfigError, match=rf"length {lengths[0] - 1}.*{lengths[0]} tokens"):
        of.largest(lengths[0] - 1)


def test_a_length_with_more_pairs_than_keys_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"length 80 has 5 pairs.*data\.keys=4.*keys=5"):
        task("task_mqar", keys=4).largest(80)
    assert task("task_mqar", keys=5).largest(80) == 5


@pytest.mark.parametrize(
    ("name", "knobs", "message"),
    [
        ("task_copy", {"examples": 0}, "examples=0"),
        ("task_copy", {"letters": 1}, "letters=1"),
        ("task_missing_duplicate", {"letters": 1}, "letters=1"),
        ("task_indirect_indexing", {"shift": 0}, "shift=0"),
        ("task_flip_flop", {"ignore": 1.5}, r"ignore=1\.5"),
        ("task_mqar", {"pair_tokens": 5}, "pair_tokens=5"),
        ("task_mqar", {"power": 0}, "power=0"),
        ("task_passkey", {"vocabulary": 22}, "vocabulary=22.*23"),
        ("task_passkey", {"key": 0}, "key=0"),
    ],
)
def test_a_knob_that_cannot_be_is_refused(name: str, knobs: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        task(name, **knobs)


@pytest.mark.parametrize("name", SOLVERS)
def test_every_knob_makes_another_task(name: str) -> None:
    config = OmegaConf.load(CONF / f"{name}.yaml")
    knobs = [key for key in config if key not in ("defaults", "_target_")]
    digests = {task(name).digest(), *(task(name, **{k: _other(config[k])}).digest() for k in knobs)}
    assert len(digests) == 1 + len(knobs)
    for knob in knobs:
        if knob != "examples":
            one, other = task(name), task(name, **{knob: _other(config[knob])})
            assert sample(one) != sample(other)


def sample(of: Task) -> list[list[int]]:
    return [of.draw(Draws(number), 8).tokens.tolist() for number in range(30)]


def _other(value: Any) -> Any:
    return value / 2 if isinstance(value, float) else value + 2


def test_what_is_drawn_never_changes() -> None:
    """A generator that draws other sequences makes another dataset: the digest says so."""
    assert Draws("a", 1).below(10, 6).tolist() == [0, 8, 9, 2, 2, 2]
    assert Draws("a", 1).distinct(6, 6).tolist() == [0, 5, 3, 4, 1, 2]
    assert {name: task(name).digest()[:8] for name in SOLVERS} == {
        "task_copy": "7fdcf4b6",
        "task_reverse": "a3196c8b",
        "task_duplicate": "ee54f1f7",
        "task_even_pairs": "2fa8cb8d",
        "task_missing_duplicate": "cb4c2944",
        "task_indirect_indexing": "e4025b0c",
        "task_flip_flop": "48d05e9d",
        "task_mqar": "12cd8aac",
        "task_passkey": "2fcb5cb4",
    }
