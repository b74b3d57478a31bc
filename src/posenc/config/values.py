"""From a command's overrides to plain values, ready to be checked and built from."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from posenc.config.compose import compose, resolve
from posenc.config.keys import refuse_strangers
from posenc.config.numbers import canonical
from posenc.config.swaps import GROUP, settle_swaps


def values_of(
    command: str,
    overrides: Sequence[str],
    config_dirs: Sequence[Path],
    known: DictConfig | None = None,
    *,
    only_known: bool = False,
) -> dict[str, Any]:
    """What `overrides` compose to: interpolations resolved, swaps settled, numbers canonical.

    `choices` among the values are the options of the groups that have one. `known` is what no
    overrides compose to, where the caller has it at hand; with `only_known`, other keys at the top
    are left out. ConfigError for those that nothing reads, and for what `compose` and `resolve`
    refuse.
    """
    known = known or compose(command, [], config_dirs)
    composed = compose(command, overrides, config_dirs, with_hydra=True)
    choices = composed.hydra.runtime.choices
    if "evaluation" in known:
        settle_swaps(composed, choices.get(GROUP), config_dirs)
    kept = [key for key in composed if (key in known if only_known else key != "hydra")]
    values = canonical(resolve(OmegaConf.masked_copy(composed, kept)))
    refuse_strangers(OmegaConf.create(values), known)
    chosen = {
        group: option
        for group, option in choices.items()
        if option is not None and not group.startswith("hydra/")
    }
    return {**values, "choices": chosen}
