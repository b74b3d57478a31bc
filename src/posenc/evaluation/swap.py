"""Swaps extend the context of a trained model by changing its encoding but not its weights."""

from collections.abc import Mapping, Sequence
from inspect import isclass
from typing import Any

from omegaconf import DictConfig, OmegaConf

from posenc.config.component_types import import_target
from posenc.config.errors import ConfigError
from posenc.config.values import walk
from posenc.encodings.base import Encoding
from posenc.encodings.drope import Drope
from posenc.model.build import build_encoding

SCALABLE_SPECTRUM = "posenc.encodings.spectra.geometric"


def swapped_config(config: DictConfig, name: str, swap: DictConfig, length: int) -> DictConfig:
    """Return `config` with the swap `name` applied to its encoding, for windows of `length` tokens.

    A swap that is a class wraps the run's encoding. A swap that is a spectrum replaces every
    spectrum in the encoding and keeps its base. If `factor` is null, it becomes `length` divided by
    the training length, but at least 1; if `size` is null, it becomes the training length. Raises
    ConfigError if the swap is a spectrum, but the encoding has no spectrum, has a spectrum other
    than `geometric`, has trainable frequencies or is wrapped in DroPE.
    """
    train_length = config.train_length
    defaults = {"factor": max(1.0, length / train_length), "size": train_length}
    kwargs: dict[str, Any] = {
        str(key): defaults.get(str(key)) if value is None else value for key, value in swap.items()
    }
    swapped = config.copy()
    if _is_wrapper(swap, config):
        swapped.encoding = {**kwargs, "inner": {**config.encoding, "_partial_": True}}
    elif not _replace_spectra(swapped.encoding, kwargs, f"evaluation/swap={name}", config.modules):
        reason = "has no spectrum to replace"
        nodes = [node for _, node in walk([OmegaConf.to_container(config.encoding)])]
        if any(_is_drope(node, config.modules) for node in nodes if isinstance(node, dict)):
            reason = "drops its positional encoding at the end of training"
        raise ConfigError(
            f"evaluation/swap={name}: {_target_name(config.encoding)} {reason}; use the swap with"
            f" a rotary or sinusoidal encoding, or use evaluation/swap=window or"
            f" evaluation/swap=temperature"
        )
    return swapped


def swap_encoding(
    trained: Encoding,
    config: DictConfig,
    name: str,
    swap: DictConfig,
    length: int,
    progress: float = 1.0,
) -> Encoding:
    """Return the run's encoding with a swap applied, and with the parameters of `trained`.

    `progress` is the fraction of training after which the parameters of `trained` were saved.
    """
    encoding = build_encoding(swapped_config(config, name, swap, length))
    prefix = "inner." if _is_wrapper(swap, config) else ""
    state = {f"{prefix}{key}": value for key, value in trained.state_dict().items()}
    encoding.load_state_dict(state, strict=True)
    encoding.set_training_progress(progress)
    return encoding


def _is_wrapper(swap: DictConfig, config: DictConfig) -> bool:
    return isclass(import_target(swap, "evaluation.swap", list(config.modules)))


def _replace_spectra(
    node: DictConfig, kwargs: dict[str, Any], name: str, modules: Sequence[str]
) -> bool:
    """Replace every spectrum in `node` with `kwargs`.

    Returns whether there was one, not counting those in encodings that DroPE drops.
    """
    replaced = False
    for key, child in node.items():
        if key == "spectrum":
            _check_replaceable(node, child, name)
            node[key] = {"base": child.base, **kwargs, "_partial_": True}
            replaced = True
        elif OmegaConf.is_dict(child):
            replaced = _replace_spectra(child, kwargs, name, modules) or replaced
    return replaced and not _is_drope(node, modules)


def _is_drope(node: Mapping[str, Any] | DictConfig, modules: Sequence[str]) -> bool:
    if "_target_" not in node:
        return False
    target = import_target(node, "encoding", list(modules))
    return isclass(target) and issubclass(target, Drope)


def _check_replaceable(node: DictConfig, spectrum: DictConfig, name: str) -> None:
    if node.get("trainable"):
        raise ConfigError(
            f"{name}: the frequencies of this {_target_name(node)} are learned (trainable=true), so"
            f" they cannot be replaced; use a run with fixed frequencies"
        )
    if spectrum._target_ != SCALABLE_SPECTRUM:
        raise ConfigError(
            f"{name}: only the geometric spectrum can be scaled, but this {_target_name(node)} uses"
            f" {spectrum._target_.rpartition('.')[2]}; use a run with"
            f" encoding/spectrum=geometric"
        )


def _target_name(node: DictConfig) -> str:
    return str(node["_target_"]).rpartition(".")[2]
