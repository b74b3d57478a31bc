"""All that is measured of a run, as tables."""

from collections.abc import Callable
from dataclasses import dataclass, field

from torch import Tensor

from posenc.encodings.base import Encoding
from posenc.inspect.run import tables
from posenc.inspect.run.attention import ByDistance, ByPosition
from posenc.inspect.run.embeddings import embeddings
from posenc.inspect.run.equal_tokens import in_a_sentence, in_a_text
from posenc.inspect.run.gates import Gates
from posenc.inspect.run.learned import learned
from posenc.inspect.run.rotary import Frequencies, turning
from posenc.inspect.run.scores import Scores
from posenc.inspect.run.tables import Row
from posenc.inspect.run.watch import watch
from posenc.model.transformer import Decoder


@dataclass
class Measured:
    """Rows of each table, and in words what does not apply to the run."""

    tables: dict[str, list[Row]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def add(self, table: str, rows: list[Row], why: str = "") -> None:
        """Rows more; where there are none, `why` is noted, once."""
        if rows:
            self.tables.setdefault(table, []).extend(rows)
        elif why and why not in self.notes:
            self.notes.append(why)


@dataclass(frozen=True)
class Subject:
    """A trained model, the encoding that it was initialised with, and what it is shown.

    `windows` are tokens [n, T] by their length T, the training length first; `sentence` are tokens
    [T], or why there are none.
    """

    model: Decoder
    initial: Encoding
    vocabulary: int
    windows: dict[int, Tensor]
    sentence: Tensor | str
    precision: str


def measure(subject: Subject, report: Callable[[str], None]) -> Measured:
    """Every table; `report` is told what is being measured."""
    found, model = Measured(), subject.model
    at_length: Tensor | None = None
    for length, tokens in subject.windows.items():
        report(f"attention in windows of {length} tokens")
        shares = _attention(found, subject, length, tokens, at_length)
        at_length = shares if at_length is None else at_length
    report("embeddings and equal tokens")
    limit, longest = model.encoding.max_length(), max(subject.windows)
    if limit is not None:
        found.notes.append(f"The encoding serves at most {limit} positions: nothing past them.")
    trained = model.encoding.geometry.train_length
    tokens = subject.windows[longest]
    rows = embeddings(model, subject.vocabulary, tokens, longest)
    found.add("embeddings", rows)
    if len(rows) == 2:
        found.notes.append(
            "The encoding adds nothing to the stream: there are no position vectors."
        )
    if isinstance(subject.sentence, str):
        found.notes.append(subject.sentence)
    else:
        found.add("equal_tokens", in_a_sentence(model, subject.sentence, subject.precision))
    found.add("equal_tokens", in_a_text(model, tokens, trained, subject.precision))
    rows = learned(subject.initial, model.encoding, trained)
    found.add("learned", rows, "The encoding has no parameters that training could move.")
    return found


def _attention(
    found: Measured, subject: Subject, length: int, tokens: Tensor, at_length: Tensor | None
) -> Tensor:
    """Tables of one length; the shares of attention by distance [layers, H, T]."""
    model, encoding = subject.model, subject.model.encoding
    layers, count = encoding.geometry.layers, encoding.geometry.heads
    trained = encoding.geometry.train_length
    first = trained if length > trained else length // 2
    distances = ByDistance(layers, count, length, first)
    positions = ByPosition(layers, count, length, trained)
    scores = Scores(layers, count, trained)
    turned = [(index, turning(encoding.at_layer(index), length)) for index in range(layers)]
    rotary = [Frequencies(index, count, turns) for index, turns in turned if turns]
    gates = [Gates(index, count) for index in range(layers)]
    watch(model, tokens, [distances, positions, scores, *rotary, *gates], subject.precision)
    shares = distances.shares()
    reference = shares if at_length is None else at_length
    found.add("heads", tables.heads(length, distances, positions, reference))
    found.add("attention_by_distance", tables.by_distance(length, distances, trained))
    found.add("attention_by_position", tables.by_position(length, positions, trained))
    found.add("scores", tables.scores(length, scores))
    why = "No layer turns queries and keys: there are no rotary frequencies."
    found.add("frequencies", tables.frequencies(length, rotary), why)
    found.add("gates", tables.gates(length, gates), "No layer has gates that tokens set.")
    return shares
