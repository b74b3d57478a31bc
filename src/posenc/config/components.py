"""Building objects from configuration nodes: only what may be built, with only what it takes."""

import importlib
import inspect
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, Literal, get_args, get_origin, get_type_hints

from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf

from posenc.config.errors import ConfigError, did_you_mean
from posenc.config.types import fits

DIRECTIVES = {"_target_", "_partial_"}


def build(
    node: DictConfig, *facts: Any, name: str, modules: Sequence[str] = (), **more: Any
) -> Any:
    """The object that `node` describes, with `facts` of the host as its first arguments.

    `name` is the node's key, for messages; `modules` the modules outside posenc that may be
    named by a `_target_`. Every target, at any depth, is checked before anything is imported,
    every knob and type before anything is built. What a constructor refuses becomes a ConfigError.
    """
    check(node, name=name, modules=modules, given=len(facts), more=more)
    try:
        return instantiate(node, *facts, _convert_="all", **more)
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
    given: int = 0,
    more: Collection[str] = (),
) -> None:
    """Refuse targets of others, unknown knobs, missing knobs and values of a wrong type."""
    if not isinstance(node, DictConfig):
        raise ConfigError(f"{name}={node!r} says nothing to build; give one of the group's options")
    _refuse_strangers(node, name, modules)
    knobs = {key: node[key] for key in node if key not in DIRECTIVES}
    for key, child in knobs.items():
        if isinstance(child, DictConfig) and "_target_" in child:
            check(child, name=f"{name}.{key}", modules=modules)
    parameters = _parameters(node, name)
    free = list(parameters)[given:]
    for key, value in knobs.items():
        if key not in free:
            there = f"there are {', '.join(free)}" if free else "it takes none"
            raise ConfigError(
                f"{name}.{key}: there is no such knob{did_you_mean(str(key), free)}; {there}"
            )
        _check_value(f"{name}.{key}", value, parameters[key][1])
    given_by_name = knobs.keys() | set(more)
    missing = [key for key in free if parameters[key][0] and key not in given_by_name]
    if missing and not node.get("_partial_", False):
        raise ConfigError(f"{name}: {', '.join(missing)} missing; give {name}.{missing[0]}=...")


def target(node: DictConfig, name: str) -> Callable[..., Any]:
    """The class or function that a node's `_target_` names; ConfigError where it is not there."""
    path = str(node["_target_"])
    module, _, attribute = path.rpartition(".")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except Exception as error:  # whatever a module of the user's own raises while it is imported
        raise ConfigError(
            f"{name}._target_={path} cannot be imported: {type(error).__name__}: {error}"
        ) from None
    if not callable(found):
        raise ConfigError(f"{name}._target_={path} is no class or function")
    return found


def targets(node: Any) -> Iterator[str]:
    """Every `_target_` in a node, in mappings and lists of any depth."""
    if isinstance(node, dict):
        if "_target_" in node:
            yield str(node["_target_"])
        node = list(node.values())
    if isinstance(node, list):
        for child in node:
            yield from targets(child)


def own_modules(config: Any) -> set[str]:
    """Modules outside posenc that the person's own overrides or YAMLs build from."""
    return {path.split(".")[0] for path in targets(config)} - {"posenc", ""}


def _refuse_strangers(node: DictConfig, name: str, modules: Sequence[str]) -> None:
    plain = OmegaConf.to_container(node, resolve=True)
    if "_target_" not in node:
        raise ConfigError(f"{name}: no _target_ says what to build")
    if "'_args_'" in repr(plain):
        raise ConfigError(f"{name}: _args_ is not supported; name the knobs")
    allowed = ["posenc", *modules]
    for path in targets(plain):
        module = path.rpartition(".")[0]
        if not any(module == root or module.startswith(f"{root}.") for root in allowed):
            remedy = f"modules='[{module.split('.')[0]}]'" if module else "module.Class"
            raise ConfigError(
                f"{name}: _target_={path} lies outside {', '.join(allowed)}; if you trust it,"
                f" give {remedy}"
            )


def _parameters(node: DictConfig, name: str) -> dict[str, tuple[bool, Any]]:
    """Name -> (required, annotation) of what the target takes."""
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
    if fits(plain, annotation):
        return
    if get_origin(annotation) is Literal:
        choices = [str(choice) for choice in get_args(annotation)]
        hint = did_you_mean(str(plain), choices)
        raise ConfigError(f"{key}={plain!r} must be one of {', '.join(choices)}{hint}")
    wanted = getattr(annotation, "__name__", None) or str(annotation)
    raise ConfigError(f"{key}={plain!r} must be of type {wanted}")
