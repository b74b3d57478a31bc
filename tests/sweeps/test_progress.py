import io

import pytest
from rich.console import Console

from posenc.sweeps.progress import Row, Snapshot, clock, display_on, percent, rate

ROWS = [
    Row("sinusoidal-L512-s1-3f9c2a1b", "evaluation", 0.704, 4.25, 9100.0, 62.0),
    Row("rope-L512-s1-0a1b2c3d", "starting", 0.0, None, None, None),
]
SNAPSHOT = Snapshot(ROWS, "3 of 8 finished, 1 failed", 0.43, 200.0)


def console(*, terminal: bool, width: int = 80) -> Console:
    return Console(file=io.StringIO(), force_terminal=terminal, width=width, color_system=None)


def printed(on: Console) -> str:
    return on.file.getvalue()  # type: ignore[attr-defined]


def test_a_terminal_shows_all_and_every_run() -> None:
    on = console(terminal=True)
    view = display_on(on)
    view.show(SNAPSHOT)
    lines = [line.rstrip() for line in printed(on).splitlines()]
    view.close()
    assert "3 of 8 finished, 1 failed · 43 % · 9.1k tokens/s · about 3:20 left" in lines
    assert any(
        line.split() == [ROWS[0].name, "evaluation", "4.250", "9.1k", "70", "%", "1:02"]
        for line in lines
    )
    assert any(
        line.split() == [ROWS[1].name, "starting", "–", "–", "0", "%", "–"] for line in lines
    )


def test_a_terminal_keeps_what_is_said_above() -> None:
    on = console(terminal=True)
    view = display_on(on)
    view.show(SNAPSHOT)
    view.say("✗ run  failed: [red] is no colour here")
    view.note("started")
    view.close()
    assert "✗ run  failed: [red] is no colour here" in printed(on)
    assert "started" not in printed(on)


def test_a_log_file_gets_a_line_every_fifteen_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = [1000.0]
    monkeypatch.setattr("time.monotonic", lambda: seconds[0])
    on = console(terminal=False, width=40)
    view = display_on(on)
    for _ in range(31):
        view.show(SNAPSHOT)
        seconds[0] += 1.0
    line = "[3 of 8 finished, 1 failed] 43 % · 9.1k tokens/s · about 3:20 left\n"
    assert printed(on) == 2 * line


def test_without_a_measurement_no_time_is_promised() -> None:
    on = console(terminal=True)
    view = display_on(on)
    view.show(Snapshot(ROWS[1:], "0 of 8 finished", 0.0, None))
    view.close()
    assert "0 of 8 finished · 0 % · estimating the time left" in printed(on)


def test_words_for_numbers() -> None:
    assert [clock(s) for s in (None, 0, 59.6, 92, 3725, 183600)] == [
        "–",
        "0:00",
        "1:00",
        "1:32",
        "1:02:05",
        "2 d 03 h",
    ]
    assert [rate(r) for r in (None, 870.4, 20080, 1.25e6)] == ["–", "870", "20.1k", "1.2M"]
    assert [percent(w) for w in (0.0, 0.999, 1.0)] == ["0 %", "99 %", "100 %"]
