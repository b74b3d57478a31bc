"""Shortened runs for debugging (config group `debug`), kept apart from real results."""

from typing import Any

from posenc.config.errors import ConfigError

SCALED = (("tokens",), ("validation", "every_tokens"), ("validation", "tokens"))
"""Settings that `debug.fraction` scales, as paths of keys."""


def apply_debug(values: dict[str, Any]) -> None:
    """Shorten a job, whose settings have been checked, according to its `debug` settings.

    The description (`about`), premises, claims and published curves of its experiment are dropped.
    `debug.overrides` are applied earlier, by `expand_config`. Raises ConfigError for a fraction
    that is not between 0 and 1.
    """
    debug = values.get("debug")
    if debug is None:
        return
    values.update(dict.fromkeys(("about", "premises", "claims", "published")))
    if debug["fraction"] is not None:
        if not 0 < debug["fraction"] <= 1:
            raise ConfigError(f"debug.fraction={debug['fraction']} must be above 0 and at most 1")
        for *parents, key in SCALED:
            node = values[parents[0]] if parents else values
            if node[key] is not None:
                node[key] = max(1, round(node[key] * debug["fraction"]))
    if debug["steps"] is not None:
        values["tokens"] = debug["steps"] * values["batch_tokens"]
