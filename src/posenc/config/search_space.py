"""Search spaces: overrides with an interval in Hydra's grammar.

For example, `optimizer.learning_rate='interval(1e-4,1e-2)'`.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

from hydra.core.override_parser.types import IntervalSweep

from posenc.config.errors import ConfigError
from posenc.config.overrides import override_key, parse
from posenc.config.settings import TYPES

INTERVAL_EXAMPLE = "optimizer.learning_rate='tag(log,interval(1e-3,1e-1))'"


class Interval(NamedTuple):
    """The values of a key from `low` to `high`, inclusive; `log` means a logarithmic scale."""

    key: str
    low: float
    high: float
    log: bool

    @property
    def is_integer(self) -> bool:
        return isinstance(self.low, int) and isinstance(self.high, int)

    @property
    def probe_overrides(self) -> list[str]:
        """Overrides that set the key to its lowest value, its highest and one in between."""
        # Not a whole number, even if both bounds are.
        middle = self.low + (self.high - self.low) / math.pi
        values = self.low, self.high, round(middle) if self.is_integer else middle
        return [f"{self.key}={value}" for value in values]


def split_intervals(overrides: Sequence[str]) -> tuple[list[Interval], list[str]]:
    """Return the parsed intervals and the overrides without intervals.

    Raises ConfigError for an interval whose first bound is not less than its second, a logarithmic
    one that is not positive, an interval of floats for an integer setting, or a key that has both
    an interval and another override.
    """
    intervals, others = [], []
    for override in parse(overrides):
        sweep = override.value()
        if isinstance(sweep, IntervalSweep):
            assert sweep.start is not None and sweep.end is not None
            log = "log" in sweep.tags
            intervals.append(Interval(override.key_or_group, sweep.start, sweep.end, log))
            _check(intervals[-1], str(override.input_line))
        else:
            others.append(str(override.input_line))
    keys = {interval.key for interval in intervals}
    if repeated := [o for o in others if override_key(o) in keys]:
        raise ConfigError(f"{repeated[0]}: this key also has an interval; set only one of the two")
    return intervals, others


def _check(interval: Interval, override: str) -> None:
    if not interval.low < interval.high:
        raise ConfigError(f"{override}: an interval's first bound must be less than its second")
    if interval.log and interval.low <= 0:
        raise ConfigError(f"{override}: the tag log needs an interval of positive numbers")
    if TYPES.get(interval.key) is int and not interval.is_integer:
        raise ConfigError(f"{override}: {interval.key} is an integer; use int(interval(LOW,HIGH))")
