"""The display of a running sweep on a terminal and in a log file."""

import io

import pytest
from rich.console import Console

from posenc.sweeps.progress import (
    ProgressRow,
    Snapshot,
    create_display,
    format_duration,
    format_percent,
    format_rate,
)

ROWS = [
    ProgressRow("sinusoidal-L512-s1-3f9c2a1b", "evaluation", 0.704, 4.25, 9100.0, 62.0),
    ProgressRow("rope-L512-s1-0a1b2c3d", "starting", 0.0, None, None, None),
]
SNAPSHOT = Snapshot(ROWS, "3 of 8 finished, 1 failed", 0.43, 200.0)


def make_console(*, terminal: bool, width: int = 80) -> Console:
    return Console(file=io.StringIO(), force_terminal=terminal, width=width, color_system=None)


def printed(console: Console) -> str:
    return console.file.getvalue()  # type: ignore[attr-defined]


def test_a_terminal_shows_the_sweep_and_every_running_run() -> None:
    console = make_console(terminal=True)
    display = create_display(console)
    display.show(SNAPSHOT)
    lines = [line.rstrip() for line in printed(console).splitlines()]
    display.close()
    assert "3 of 8 finished, 1 failed · 43% · 9.1k tokens/s · about 3:20 left" in lines
    assert any(
        line.split() == [ROWS[0].name, "evaluation", "4.250", "9.1k", "70%", "1:02"]
        for line in lines
    )
    assert any(line.split() == [ROWS[1].name, "starting", "–", "–", "0%", "–"] for line in lines)


def test_a_terminal_keeps_messages_above_the_live_display() -> None:
    console = make_console(terminal=True)
    display = create_display(console)
    display.show(SNAPSHOT)
    display.print("✗ run  failed: [red] is not markup")
    display.log("started")
    display.close()
    assert "✗ run  failed: [red] is not markup" in printed(console)
    assert "started" not in printed(console)


def test_a_log_file_gets_a_line_every_15_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [1000.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    console = make_console(terminal=False, width=40)
    display = create_display(console)
    for _ in range(31):
        display.show(SNAPSHOT)
        clock[0] += 1.0
    line = "[3 of 8 finished, 1 failed] 43% · 9.1k tokens/s · about 3:20 left\n"
    assert printed(console) == 2 * line


def test_without_an_estimate_no_time_left_is_shown() -> None:
    console = make_console(terminal=True)
    display = create_display(console)
    display.show(Snapshot(ROWS[1:], "0 of 8 finished", 0.0, None))
    display.close()
    assert "0 of 8 finished · 0% · estimating the time left" in printed(console)


def test_durations_rates_and_fractions_are_formatted() -> None:
    assert [format_duration(s) for s in (None, 0, 59.6, 92, 3725, 183600)] == [
        "–",
        "0:00",
        "1:00",
        "1:32",
        "1:02:05",
        "2 d 03 h",
    ]
    assert [format_rate(r) for r in (None, 870.4, 20080, 1.25e6)] == ["–", "870", "20.1k", "1.2M"]
    assert [format_percent(w) for w in (0.0, 0.999, 1.0)] == ["0%", "99%", "100%"]
