"""All measurements of a trained model, as table rows."""

from collections.abc import Callable
from dataclasses import dataclass, field

from torch import Tensor

from posenc.config.errors import RunError
from posenc.encodings.base import Encoding
from posenc.inspect.run.attention_sums import (
    AttentionByDistance,
    AttentionByPosition,
    ForgetGates,
    ScoreRegions,
    head_rows,
)
from posenc.inspect.run.identical_tokens import sentence_rows, text_rows
from posenc.inspect.run.observe import observe_attention
from posenc.inspect.run.rotary_frequencies import FrequencyContributions, rotary_channels
from posenc.inspect.run.trained_parameters import embedding_rows, parameter_rows
from posenc.model.transformer import Decoder
from posenc.runs.row_types import Row


@dataclass
class RunMeasurements:
    """Rows by table, and notes on limits and on measurements that do not apply to the run."""

    tables: dict[str, list[Row]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def add(self, table: str, rows: list[Row], reason: str = "") -> None:
        """Append rows to a table; if there are none, add the reason to the notes once."""
        if rows:
            self.tables.setdefault(table, []).extend(rows)
        elif reason and reason not in self.notes:
            self.notes.append(reason)


@dataclass(frozen=True)
class TrainedRun:
    """A trained model, its encoding at initialization, and the text to run it on.

    `windows` maps each length T, the training length first, to tokens [n, T]. `sentence` holds the
    tokens [T] of the sentence, or the reason why the model cannot process it.
    """

    model: Decoder
    initial_encoding: Encoding
    vocab_size: int
    windows: dict[int, Tensor]
    sentence: Tensor | str
    precision: str


def measure_run(run: TrainedRun, on_progress: Callable[[str], None]) -> RunMeasurements:
    """Measure the run; `on_progress` is called with the name of each step."""
    results, model = RunMeasurements(), run.model
    train_length, longest = model.encoding.geometry.train_length, max(run.windows)
    fractions: dict[int, Tensor] = {}
    for length in run.windows:
        on_progress(f"attention in windows of {length} tokens")
        _measure_attention(results, run, length, fractions)
        if not fractions[length].isfinite().all():
            raise RunError(
                f"the attention is NaN or infinite in windows of {length} tokens, because training"
                f" diverged or the encoding overflows at this length; inspect another run, or leave"
                f" out this length"
            )
    on_progress("embeddings and identical tokens")
    limit, tokens = model.encoding.max_length(), run.windows[longest]
    if limit is not None:
        results.notes.append(f"The encoding supports at most {limit} positions.")
    rows = embedding_rows(model, run.vocab_size, tokens, longest)
    results.add("embeddings", rows)
    if len(rows) == 2:
        results.notes.append("The encoding adds no position embeddings to the hidden states.")
    if isinstance(run.sentence, str):
        results.notes.append(run.sentence)
    else:
        results.add("equal_tokens", sentence_rows(model, run.sentence, run.precision))
    results.add("equal_tokens", text_rows(model, tokens, train_length, run.precision))
    rows = parameter_rows(run.initial_encoding, model.encoding, train_length)
    results.add("learned", rows, "The encoding has no trainable parameters.")
    return results


def _measure_attention(
    results: RunMeasurements, run: TrainedRun, length: int, fractions: dict[int, Tensor]
) -> None:
    """Add rows for windows of `length` to `results`, and attention by distance to `fractions`."""
    encoding = run.model.encoding
    layers, heads = encoding.geometry.layers, encoding.geometry.heads
    train_length = encoding.geometry.train_length
    first_query = train_length if length > train_length else length // 2
    by_distance = AttentionByDistance(layers, heads, length, first_query)
    by_position = AttentionByPosition(layers, heads, length, train_length)
    score_regions = ScoreRegions(layers, heads, train_length)
    channels = [(i, rotary_channels(encoding.at_layer(i), length)) for i in range(layers)]
    frequencies = [FrequencyContributions(i, heads, rotary) for i, rotary in channels if rotary]
    gates = [ForgetGates(i, heads) for i in range(layers)]
    observers = [by_distance, by_position, score_regions, *frequencies, *gates]
    observe_attention(run.model, run.windows[length], observers, run.precision)
    fractions[length] = by_distance.fractions()
    results.add("heads", head_rows(by_distance, by_position, fractions[train_length]))
    results.add("attention_by_distance", by_distance.rows(train_length))
    results.add("attention_by_position", by_position.rows())
    results.add("scores", score_regions.rows(length))
    frequency_rows = [row for layer in frequencies for row in layer.rows(length)]
    results.add(
        "frequencies",
        frequency_rows,
        "No layer has rotary frequencies to analyze: this requires RoPE, PoPE or a variant that"
        " uses the same rotation for all query-key pairs.",
    )
    gate_rows = [row for layer in gates for row in layer.rows(length)]
    results.add("gates", gate_rows, "No layer has the forget gates of FoX or CABLE.")
