"""Instantiation of configuration nodes, after checks of their targets and arguments."""

import importlib
import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from inspect import Parameter
from typing import Any, Literal, get_args, get_origin, get_type_hints

from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf

from posenc.config.errors import ConfigError, did_you_mean
from posenc.config.values import matches_type, walk

HYDRA_KEYS = {"_target_", "_partial_"}
"""Keys of a node that are instructions for Hydra rather than arguments of the target."""


def build(
    node: DictConfig, *args: Any, name: str, modules: Sequence[str] = (), **kwargs: Any
) -> Any:
    """Instantiate `node` with `args` as its first positional arguments.

    `name` is the node's key in error messages. `modules` lists the modules outside posenc from
    which a `_target_` may be imported. All targets, at any depth, are checked before anything is
    imported, and all argument names and types are checked before anything is built. Raises
    ConfigError if a check or a constructor fails.
    """
    check(node, name=name, modules=modules, num_args=len(args), kwargs=kwargs)
    try:
        return instantiate(node, *args, _convert_="all", **kwargs)
    except Exception as error:
        cause = error.__cause__ or error
        if isinstance(cause, ConfigError):
            raise cause from None
        error_type = "" if isinstance(cause, ValueError) else f"{type(cause).__name__}: "
        raise ConfigError(f"{name}: {error_type}{cause}") from error


def check(
    node: Any,
    *,
    name: str,
    modules: Sequence[str] = (),
    num_args: int = 0,
    kwargs: Collection[str] = (),
) -> None:
    """Raise ConfigError for untrusted targets and for unknown, missing or mistyped arguments.

    `build` supplies the first `num_args` arguments by position and those in `kwargs` by name.
    """
    if not isinstance(node, DictConfig):
        raise ConfigError(f"{name}={node!r} has no _target_; choose one of the group's options")
    _check_targets(node, name, modules)
    values = {key: node[key] for key in node if key not in HYDRA_KEYS}
    for key, child in values.items():
        if isinstance(child, DictConfig) and "_target_" in child:
            check(child, name=f"{name}.{key}", modules=modules)
    parameters = _parameters(node, name)
    configurable = list(parameters)[num_args:]
    for key, value in values.items():
        if key not in configurable:
            available = ", ".join(configurable) or "none"
            hint = did_you_mean(str(key), configurable)
            raise ConfigError(f"unknown parameter {name}.{key}{hint}; available: {available}")
        _check_value(f"{name}.{key}", value, parameters[key].annotation)
    supplied = values.keys() | set(kwargs)
    required = [key for key in configurable if parameters[key].default is Parameter.empty]
    missing = [key for key in required if key not in supplied]
    if missing and not node.get("_partial_", False):
        raise ConfigError(f"{name}: {', '.join(missing)} missing; set {name}.{missing[0]}=...")


def import_target(node: DictConfig, name: str) -> Callable[..., Any]:
    """Return the class or function that a node's `_target_` names.

    Raises ConfigError if it cannot be imported. `name` is the node's key in error messages.
    """
    path = str(node["_target_"])
    module, _, attribute = path.rpartition(".")
    try:
        imported = getattr(importlib.import_module(module), attribute)
    except Exception as error:  # importing a user's module may raise anything
        raise ConfigError(
            f"{name}._target_={path} cannot be imported: {type(error).__name__}: {error}"
        ) from None
    if not callable(imported):
        raise ConfigError(f"{name}._target_={path} is not a class or function")
    return imported


def trusted_modules(values: Mapping[str, Any]) -> list[str]:
    """Return the modules listed in a composed command and the top-level modules of its targets."""
    roots = {target.split(".")[0] for target in _targets(values)} - {"posenc", ""}
    return sorted({*values["modules"], *roots})


def _targets(node: Any) -> list[str]:
    """Return every `_target_` in nested mappings and lists."""
    return [str(value) for path, value in walk(node) if path.split(".")[-1] == "_target_"]


def _check_targets(node: DictConfig, name: str, modules: Sequence[str]) -> None:
    plain = OmegaConf.to_container(node, resolve=True)
    if "_target_" not in node:
        raise ConfigError(f"{name} has no _target_")
    if "'_args_'" in repr(plain):
        raise ConfigError(f"{name}: _args_ is not supported; pass arguments by name")
    allowed = ["posenc", *modules]
    for path in _targets(plain):
        module = path.rpartition(".")[0]
        if not any(f"{module}.".startswith(f"{package}.") for package in allowed):
            root = module.split(".")[0]
            remedy = f"set modules='[{root}]'" if root else "write it as module.Class"
            raise ConfigError(
                f"{name}: _target_={path} is outside {', '.join(allowed)}; if you trust it,"
                f" {remedy}"
            )


def _parameters(node: DictConfig, name: str) -> dict[str, Parameter]:
    """Return the parameters of a node's target with their annotations resolved."""
    target = import_target(node, name)
    hints = get_type_hints(target.__init__ if inspect.isclass(target) else target)
    return {
        key: parameter.replace(annotation=hints.get(key, Any))
        for key, parameter in inspect.signature(target).parameters.items()
    }


def _check_value(key: str, value: Any, annotation: Any) -> None:
    if isinstance(value, DictConfig) and "_target_" in value:
        return
    plain = OmegaConf.to_container(value) if OmegaConf.is_config(value) else value
    if matches_type(plain, annotation):
        return
    if get_origin(annotation) is Literal:
        choices = [str(choice) for choice in get_args(annotation)]
        hint = did_you_mean(str(plain), choices)
        raise ConfigError(f"{key}={plain!r} must be one of {', '.join(choices)}{hint}")
    type_name = getattr(annotation, "__name__", None) or str(annotation)
    raise ConfigError(f"{key}={plain!r} must be of type {type_name}")
