"""The encoding's length-dependent part exchanged on the weights that a run has trained."""

from inspect import isclass
from typing import Any

from omegaconf import DictConfig, OmegaConf

from posenc.config.components import target
from posenc.config.errors import ConfigError
from posenc.encodings.base import Encoding
from posenc.model.build import build_encoding

SCALED = "posenc.encodings.spectra.geometric"


def exchanged(config: DictConfig, name: str, swap: DictConfig, length: int) -> DictConfig:
    """`config` with the encoding that a swap makes of the run's own for windows of `length`.

    A swap that is a class goes around the run's encoding; one that is a spectrum takes the place
    of every spectrum in it, with its base. A `factor` of null is the length over that of
    training, 1 at least, and a `size` of null the training length. ConfigError names an encoding
    that has no spectrum, another one than `geometric`, or a trained one.
    """
    trained = config.train_length
    null: dict[str, Any] = {"factor": max(1.0, length / trained), "size": trained}
    knobs = {key: null.get(str(key)) if value is None else value for key, value in swap.items()}
    changed = config.copy()
    if wraps(swap):
        changed.encoding = {**knobs, "inner": {**config.encoding, "_partial_": True}}
    elif not _replace_spectra(changed.encoding, knobs, f"evaluation/swap={name}"):
        raise ConfigError(
            f"evaluation/swap={name}: {_target_name(config.encoding)} has no spectrum to exchange;"
            f" rotary and sinusoidal encodings have, and window and log_n go around any"
        )
    return changed


def exchange(
    own: Encoding, config: DictConfig, name: str, swap: DictConfig, length: int
) -> Encoding:
    """What a swap makes of a run's `own` encoding, with all that was trained of it."""
    encoding = build_encoding(exchanged(config, name, swap, length), list(config.modules))
    prefix = "inner." if wraps(swap) else ""
    state = {f"{prefix}{key}": value for key, value in own.state_dict().items()}
    encoding.load_state_dict(state, strict=True)
    return encoding


def wraps(swap: DictConfig) -> bool:
    """Whether a swap goes around the run's encoding."""
    return isclass(target(swap, "evaluation.swap"))


def _replace_spectra(node: DictConfig, knobs: dict[Any, Any], name: str) -> bool:
    """Put `knobs` in the place of every spectrum in the node; whether there was one."""
    found = False
    for key, child in node.items():
        if key == "spectrum":
            _refuse(node, child, name)
            node[key] = {"base": child.base, **knobs, "_partial_": True}
            found = True
        elif OmegaConf.is_dict(child):
            found = _replace_spectra(child, knobs, name) or found
    return found


def _refuse(node: DictConfig, spectrum: DictConfig, name: str) -> None:
    if node.get("trainable"):
        raise ConfigError(
            f"{name}: the frequencies of this {_target_name(node)} are trained"
            f" (trainable=true), so there is no spectrum to exchange; take a run of fixed ones"
        )
    if spectrum._target_ != SCALED:
        raise ConfigError(
            f"{name}: it scales the spectrum geometric, and this {_target_name(node)} has"
            f" {spectrum._target_.rpartition('.')[2]}; take a run with encoding/spectrum=geometric"
        )


def _target_name(node: DictConfig) -> str:
    return str(node["_target_"]).rpartition(".")[2]
