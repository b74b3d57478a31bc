"""Instantiation of configuration nodes: only trusted targets, only valid arguments."""

import importlib
import inspect
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, Literal, get_args, get_origin, get_type_hints

from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf

from posenc.config.errors import ConfigError, did_you_mean
from posenc.config.values import matches_type

DIRECTIVES = {"_target_", "_partial_"}


def build(
    node: DictConfig, *args: Any, name: str, modules: Sequence[str] = (), **kwargs: Any
) -> Any:
    """Instantiate `node` with `args` as its first positional arguments.

    `name` is the node's key, for messages; `modules` are modules outside posenc that a `_target_`
    may name. Targets at any depth are checked before anything is imported, names and types of
    arguments before anything is built. An exception of a constructor becomes a ConfigError.
    """
    check(node, name=name, modules=modules, num_args=len(args), kwargs=kwargs)
    try:
        return instantiate(node, *args, _convert_="all", **kwargs)
    except Exception as error:
        cause = error.__cause__ or error
        if isinstance(cause, ConfigError):
            raise cause from None
        kind = "" if isinstance(cause, ValueError) else f"{type(cause).__name__}: "
        raise ConfigError(f"{name}: {kind}{cause}") from error


def check(
    node: Any,
    *,
    name: str,
    modules: Sequence[str] = (),
    num_args: int = 0,
    kwargs: Collection[str] = (),
) -> None:
    """Raise ConfigError for untrusted targets and for unknown, missing or mistyped arguments.

    `num_args` positional arguments and those named in `kwargs` are supplied by `build`.
    """
    if not isinstance(node, DictConfig):
        raise ConfigError(f"{name}={node!r} has no _target_; give one of the group's options")
    _check_targets(node, name, modules)
    values = {key: node[key] for key in node if key not in DIRECTIVES}
    for key, child in values.items():
        if isinstance(child, DictConfig) and "_target_" in child:
            check(child, name=f"{name}.{key}", modules=modules)
    parameters = _parameters(node, name)
    configurable = list(parameters)[num_args:]
    for key, value in values.items():
        if key not in configurable:
            available = f"available: {', '.join(configurable)}" if configurable else "it has none"
            hint = did_you_mean(str(key), configurable)
            raise ConfigError(f"unknown parameter {name}.{key}{hint}; {available}")
        _check_value(f"{name}.{key}", value, parameters[key][1])
    supplied = values.keys() | set(kwargs)
    missing = [key for key in configurable if parameters[key][0] and key not in supplied]
    if missing and not node.get("_partial_", False):
        raise ConfigError(f"{name}: {', '.join(missing)} missing; give {name}.{missing[0]}=...")


def target(node: DictConfig, name: str) -> Callable[..., Any]:
    """Import the class or function that a node's `_target_` names; ConfigError if impossible."""
    path = str(node["_target_"])
    module, _, attribute = path.rpartition(".")
    try:
        imported = getattr(importlib.import_module(module), attribute)
    except Exception as error:  # a user's module may raise anything while it is imported
        raise ConfigError(
            f"{name}._target_={path} cannot be imported: {type(error).__name__}: {error}"
        ) from None
    if not callable(imported):
        raise ConfigError(f"{name}._target_={path} is not a class or function")
    return imported


def user_modules(config: Any) -> set[str]:
    """Return the top-level modules outside posenc that targets of a plain config name."""
    return {path.split(".")[0] for path in _targets(config)} - {"posenc", ""}


def _targets(node: Any) -> Iterator[str]:
    """Yield every `_target_` in nested mappings and lists."""
    if isinstance(node, dict):
        if "_target_" in node:
            yield str(node["_target_"])
        node = list(node.values())
    if isinstance(node, list):
        for child in node:
            yield from _targets(child)


def _check_targets(node: DictConfig, name: str, modules: Sequence[str]) -> None:
    plain = OmegaConf.to_container(node, resolve=True)
    if "_target_" not in node:
        raise ConfigError(f"{name} has no _target_")
    if "'_args_'" in repr(plain):
        raise ConfigError(f"{name}: _args_ is not supported; name the parameters")
    allowed = ["posenc", *modules]
    for path in _targets(plain):
        module = path.rpartition(".")[0]
        if not any(module == root or module.startswith(f"{root}.") for root in allowed):
            remedy = f"modules='[{module.split('.')[0]}]'" if module else "module.Class"
            raise ConfigError(
                f"{name}: _target_={path} is outside {', '.join(allowed)}; if you trust it,"
                f" give {remedy}"
            )


def _parameters(node: DictConfig, name: str) -> dict[str, tuple[bool, Any]]:
    """Return (required, annotation) for each parameter of a node's target."""
    function = target(node, name)
    hints = get_type_hints(function.__init__ if inspect.isclass(function) else function)
    return {
        key: (parameter.default is parameter.empty, hints.get(key, Any))
        for key, parameter in inspect.signature(function).parameters.items()
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
