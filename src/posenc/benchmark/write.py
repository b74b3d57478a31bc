"""A benchmark's files, all made before the first is written, and what is printed."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from posenc.benchmark.figure import draw
from posenc.benchmark.results import Row
from posenc.benchmark.tables import BESIDE, COST, markdown, terminal, to_csv
from posenc.runs.figure import png, svg
from posenc.runs.files import write_atomic, write_json

READING = (
    "ms and tokens/s are medians over the rounds. ratio is time over that of the first row of the"
    " same length and pass, formed within each round, its median and its range. peak MB"
    " is by how much a process of its own grows in the pass, beyond weights and optimizer."
    " utilised is model FLOPs per second over those of a matrix product timed in the same"
    " rounds; docs/benchmarks.md has the convention."
)


def write(folder: Path, rows: Sequence[Row], command: str, texts: Mapping[str, Any]) -> None:
    """bench.json, .csv, .md, .png and .svg; a benchmark that was there before is replaced.

    `texts` has `title`, and maybe `question`, `conclude` and `caution`, of the experiment, and the
    `source` of published numbers.
    """
    drawn = partial(draw, rows, texts["title"], setting(rows))
    made: dict[str, str | bytes] = {
        "bench.csv": to_csv(rows),
        "bench.md": _page(rows, command, texts),
        "bench.png": png(drawn),
        "bench.svg": svg(drawn, texts["title"]),
    }
    write_json(folder / "bench.json", {"command": command, **texts, "rows": list(rows)})
    for name, data in made.items():
        write_atomic(folder / name, data)


def show(console: Console, rows: Sequence[Row], texts: Mapping[str, Any]) -> None:
    """Print the tables and how to read them."""
    console.print(Text(texts["title"], "bold"))
    console.print(terminal(rows, COST))
    if _published(rows):
        console.print(Text(f"\nBeside {texts['source']}", "bold"))
        console.print(terminal(_published(rows), BESIDE))
    for paragraph in [setting(rows), READING, *_words(texts)]:
        console.print(Text(f"\n{paragraph}", "dim"))


def setting(rows: Sequence[Row]) -> str:
    """What the numbers were measured on and with, in a sentence."""

    def every(key: str) -> str:
        return " or ".join(dict.fromkeys(str(row[key]) for row in rows))

    first, model = rows[0], rows[0]["model_config"]
    many = "s" if first["threads"] > 1 else ""
    return (
        f"{first['device']}, {first['threads']} thread{many}, torch {first['torch']},"
        f" {first['date']}: width {model['width']}, {model['layers']} layers, {model['heads']}"
        f" heads, vocabulary {every('vocab_size')}, {every('batch_tokens')} tokens a pass,"
        f" {every('precision')}, {first['rounds']} rounds"
    )


def _page(rows: Sequence[Row], command: str, texts: Mapping[str, Any]) -> str:
    parts = [f"# {texts['title']}", f"`{command}`", setting(rows), markdown(rows, COST)]
    if _published(rows):
        parts += [f"Beside {texts['source']}:", markdown(_published(rows), BESIDE)]
    return "\n\n".join(part.strip() for part in [*parts, READING, *_words(texts)]) + "\n"


def _words(texts: Mapping[str, Any]) -> list[str]:
    return [texts[key] for key in ("question", "conclude", "caution") if key in texts]


def _published(rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if row["published_ratio"] is not None]
