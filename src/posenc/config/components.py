"""Instantiation of configuration nodes, after checks of their targets and arguments."""

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from copy import deepcopy
from functools import partial
from inspect import Parameter
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from posenc.config.component_types import (
    GROUP_TYPES,
    check_trusted,
    group_type,
    import_target,
    in_library,
    is_alias,
    is_allowed,
    is_user_code,
    type_hints,
)
from posenc.config.errors import ConfigError, did_you_mean, first_line
from posenc.config.user_code import definition_location
from posenc.config.values import matches_type, walk

HYDRA_KEYS = {"_target_", "_partial_"}
"""Keys of a node that are instructions for Hydra rather than arguments of the target."""

NUM_POSITIONAL_ARGS = {"model": 3, "encoding": 1}
"""The number of positional arguments that posenc passes to a group's target, by default 0."""


def build(
    node: DictConfig, *args: Any, name: str, modules: Sequence[str] = (), **kwargs: Any
) -> Any:
    """Instantiate `node` with `args` as its first positional arguments.

    `name` is the config group of the node, as in `check`. `modules` lists the modules outside
    posenc from which a `_target_` may be imported. All targets, at any depth, are checked before
    anything is built, and so are the names and types of all arguments. Raises ConfigError if a
    check or a constructor fails.
    """
    node = check(node, name=name, modules=modules, kwargs=kwargs)
    try:
        result = instantiate(node, *args, _convert_="all", **kwargs)
    except (Exception, SystemExit) as error:  # a constructor outside posenc may raise anything
        cause = error.__cause__ or error
        if isinstance(cause, ConfigError):
            raise cause from None
        error_type = "" if isinstance(cause, ValueError) else f"{type(cause).__name__}: "
        if "HYDRA_INSTANTIATE_ALLOWLIST_OVERRIDE" in str(cause):  # would allow any code to run
            raise ConfigError(f"{name}: Hydra does not instantiate {node['_target_']}") from error
        raise ConfigError(f"{name}: {error_type}{cause}") from error
    annotation = group_type(_group(name))
    if args and get_origin(annotation) is Callable:
        annotation = get_args(annotation)[1]
    _check_result(result, annotation, node, name, modules)
    return result


def _check_result(
    result: Any, annotation: Any, node: DictConfig, name: str, modules: Sequence[str]
) -> None:
    """Raise ConfigError if `result` is not of type `annotation`, as may happen in user code."""
    is_union = get_origin(annotation) in (Union, UnionType)
    types = get_args(annotation) if is_union else (annotation,)
    if any(_is_instance(result, type_) for type_ in types):
        return
    expected = " or ".join(
        f"{type_.__module__}.{type_.__qualname__}" if inspect.isclass(type_) else "function"
        for type_ in types
    )
    target = import_target(node, name, modules, _group(name))
    remedy = "; remove _partial_" if isinstance(result, partial) else ""
    raise ConfigError(
        f"{definition_location(target)}: {name}._target_={node['_target_']} returned a"
        f" {type(result).__name__}, but must return a {expected}{remedy}"
    )


def _is_instance(value: Any, type_: Any) -> bool:
    if get_origin(type_) is Callable:
        return callable(value)
    is_protocol = getattr(type_, "_is_protocol", False)  # isinstance would raise TypeError
    return is_protocol or isinstance(value, type_)


def _group(name: str) -> str:
    return name if name in GROUP_TYPES else name.split(".")[0]


def check(
    node: Any,
    *,
    name: str,
    modules: Sequence[str] = (),
    kwargs: Collection[str] = (),
) -> DictConfig:
    """Check the targets of `node` and their arguments.

    Returns a copy of `node` in which the values of float parameters are floats again: `canonical`
    has replaced 1.0 with 1, so that both have the same hash.

    `name` is the config group of the node; if the group holds several nodes, it is followed by the
    node's key, as in `callbacks.early_stopping`. `build` supplies the arguments in `kwargs` by
    name, and the first ones by position (`NUM_POSITIONAL_ARGS`). Raises ConfigError for targets
    that are not trusted or not of the group's type (`GROUP_TYPES`), and for arguments that are
    unknown, missing or of the wrong type.
    """
    if not isinstance(node, DictConfig):
        raise ConfigError(f"{name}={node!r} has no _target_; choose one of the group's options")
    if "_target_" not in node:
        raise ConfigError(f"{name} has no _target_")
    try:
        plain = OmegaConf.to_container(node, resolve=True)
    except OmegaConfBaseException as error:
        raise ConfigError(f"{error.full_key}: {first_line(error)}") from None
    if "'_args_'" in repr(plain):
        raise ConfigError(f"{name}: _args_ is not supported; pass arguments by name")
    group = _group(name)
    check_trusted(plain, name, modules, group)
    num_args, node = NUM_POSITIONAL_ARGS.get(name, 0), deepcopy(node)
    OmegaConf.set_readonly(node, False)
    _check_node(node, name, group_type(group), group, modules, num_args, kwargs)
    return node


def _check_node(
    node: DictConfig,
    name: str,
    annotation: Any,
    group: str,
    modules: Sequence[str],
    num_args: int = 0,
    kwargs: Collection[str] = (),
) -> None:
    """Check a node that must build a value of type `annotation`, and the nodes inside it.

    Integers for float parameters are converted in place, also in lists and mappings.
    """
    target = import_target(node, name, modules, group)
    is_partial = bool(node.get("_partial_", False))
    path = str(node["_target_"])
    is_library, is_factory = in_library(path, group), is_partial or num_args > 0
    if not is_user_code(path, group):
        _check_allowed(target, path, name, annotation, group, is_factory=is_factory)
    if is_library and is_factory:  # posenc passes only one argument
        is_partial, num_args = False, 1
    values = {key: node[key] for key in node if key not in HYDRA_KEYS}
    parameters = _parameters(target)
    configurable = list(parameters)[num_args:]
    for key, value in values.items():
        child = f"{name}.{key}"
        if key not in configurable:
            if key in parameters and group == "encoding" and key != "geometry":
                raise ConfigError(_missing_geometry_message(target, str(key)))
            available = ", ".join(configurable) or "none"
            hint = did_you_mean(str(key), configurable)
            raise ConfigError(f"unknown parameter {child}{hint}; available: {available}")
        if isinstance(value, DictConfig) and "_target_" in value:
            _check_node(value, child, parameters[key].annotation, group, modules)
        else:
            plain = OmegaConf.to_container(value) if OmegaConf.is_config(value) else value
            _check_value(child, plain, parameters[key].annotation)
            node[key] = _with_floats(plain, parameters[key].annotation)
    supplied = values.keys() | set(kwargs)
    missing = [
        key
        for key in configurable
        if parameters[key].default is Parameter.empty and key not in supplied
    ]
    if missing and not is_partial:
        if missing[0] == next(iter(parameters)) and get_origin(annotation) is Callable:
            raise ConfigError(f"{name}: posenc supplies {missing[0]}; set {name}._partial_=true")
        raise ConfigError(f"{name} has no {' and no '.join(missing)}; set {name}.{missing[0]}=...")


def _check_allowed(
    target: Any, path: str, name: str, annotation: Any, group: str, *, is_factory: bool
) -> None:
    """Raise ConfigError if a target may not be used, or may be used only as a factory."""
    if is_allowed(target, annotation, group, is_factory=is_factory) and not is_alias(path, target):
        return
    remedy = "choose one of the group's options"
    if not is_factory and is_allowed(target, annotation, group, is_factory=True):
        remedy = f"set {name}._partial_=true"
    raise ConfigError(f"{name}._target_={path} cannot be used for {name}; {remedy}")


def _missing_geometry_message(target: Callable[..., Any], key: str) -> str:
    """Return the error message for an encoding whose first parameter is not the geometry."""
    function = target.__init__ if inspect.isclass(target) else target
    return (
        f"{definition_location(function)}: {function.__qualname__} takes"
        f" {inspect.signature(function)}, but must take the geometry first:"
        f" (self, geometry, *, {key})"
    )


def _parameters(target: Callable[..., Any]) -> dict[str, Parameter]:
    """Return the named parameters of a target with their annotations resolved."""
    hints = type_hints(target.__init__ if inspect.isclass(target) else target)
    return {
        key: parameter.replace(annotation=hints.get(key, Any))
        for key, parameter in inspect.signature(target).parameters.items()
        if parameter.kind not in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
    }


def _with_floats(value: Any, annotation: Any) -> Any:
    """Return a plain value with floats where the annotation has them.

    Integral floats have become integers in the configuration; see `values.canonical`.
    """
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin in (Union, UnionType) and int not in arguments:
        values = [value, tuple(value)] if isinstance(value, list) else [value]  # as in _check_value
        matching = (kind for kind in arguments if any(matches_type(v, kind) for v in values))
        return _with_floats(value, next(matching, None))
    if annotation is float and type(value) is int:
        return float(value)
    if not arguments:
        return value
    if isinstance(value, list) and origin in (list, tuple, Sequence):
        is_fixed = origin is tuple and arguments[-1] is not ...
        types = arguments if is_fixed else arguments[:1] * len(value)
        return [_with_floats(*pair) for pair in zip(value, types, strict=True)]
    if isinstance(value, dict) and origin in (dict, Mapping):
        return {key: _with_floats(item, arguments[1]) for key, item in value.items()}
    return value


def _check_value(key: str, plain: Any, annotation: Any) -> None:
    if any(path.split(".")[-1] == "_target_" for path, _ in walk(plain)):
        raise ConfigError(
            f"{key}: a _target_ inside a list or a mapping is not supported; write"
            " a function that builds the component, and name it in _target_"
        )
    if matches_type(plain, annotation):
        return
    if isinstance(plain, list) and matches_type(tuple(plain), annotation):  # YAML has no tuples
        return
    if get_origin(annotation) is Literal:
        choices = [str(choice) for choice in get_args(annotation)]
        hint = did_you_mean(str(plain), choices)
        raise ConfigError(f"{key}={plain!r} must be one of {', '.join(choices)}{hint}")
    type_name = getattr(annotation, "__name__", None) or str(annotation)
    raise ConfigError(f"{key}={plain!r} must be of type {type_name}")
