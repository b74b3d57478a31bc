"""Building objects from configuration nodes: only what may be built, with only what it takes."""

import importlib
import inspect
from collections.abc import Callable, Collection, Sequence
from typing import Any, get_type_hints

from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf
from typeguard import TypeCheckError, check_type

from posenc.config.errors import ConfigError, did_you_mean

RESERVED = {"_target_", "_partial_", "_args_", "_recursive_", "_convert_"}


def build(
    node: DictConfig, *facts: Any, name: str, modules: Sequence[str] = (), **more: Any
) -> Any:
    """The object that `node` describes, with `facts` of the host as its first arguments.

    `name` is the node's key, for messages; `modules` the modules outside posenc that may be
    named by a `_target_`. Every target, knob and type is checked before anything is imported
    or built; a ValueError from a constructor becomes a ConfigError.
    """
    check(node, name=name, modules=modules, given=len(facts), more=more)
    try:
        return instantiate(node, *facts, _convert_="all", **more)
    except Exception as error:
        cause = error.__cause__ or error
        if isinstance(cause, ConfigError):
            raise cause from None
        if isinstance(cause, ValueError):
            raise ConfigError(f"{name}: {cause}") from None
        raise


def check(
    node: DictConfig,
    *,
    name: str,
    modules: Sequence[str] = (),
    given: int = 0,
    more: Collection[str] = (),
) -> None:
    """Refuse targets of others, unknown knobs, missing knobs and values of a wrong type."""
    knobs = {key: node[key] for key in node if key not in RESERVED}
    for key, child in knobs.items():
        if isinstance(child, DictConfig) and "_target_" in child:
            check(child, name=f"{name}.{key}", modules=modules)
    parameters = _parameters(node, name, modules)
    free = list(parameters)[given:]
    for key, value in knobs.items():
        if key not in free:
            hint = did_you_mean(key, free)
            raise ConfigError(
                f"{name}.{key}: there is no such knob{hint}; there are {', '.join(free)}"
            )
        _check_value(f"{name}.{key}", value, parameters[key][1])
    if not node.get("_partial_", False):
        missing = [
            key for key in free if parameters[key][0] and key not in knobs | dict.fromkeys(more)
        ]
        if missing:
            raise ConfigError(f"{name}: {', '.join(missing)} missing; give {name}.{missing[0]}=...")


def target(node: DictConfig, *, name: str, modules: Sequence[str] = ()) -> Callable[..., Any]:
    """The class or function that a node's `_target_` names, once it is known to be allowed."""
    path = node.get("_target_")
    if not isinstance(path, str):
        raise ConfigError(f"{name}: no _target_ says what to build")
    module, _, attribute = path.rpartition(".")
    allowed = ["posenc", *modules]
    if not any(module == root or module.startswith(f"{root}.") for root in allowed):
        raise ConfigError(
            f"{name}._target_={path} lies outside {', '.join(allowed)}; if you trust the module,"
            f" name it: modules='[{module.split('.')[0]}]'"
        )
    try:
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"{name}._target_={path} cannot be imported: {error}") from None


def _parameters(node: DictConfig, name: str, modules: Sequence[str]) -> dict[str, tuple[bool, Any]]:
    """Name -> (required, annotation) of what the target takes."""
    function = target(node, name=name, modules=modules)
    hints = get_type_hints(function.__init__ if inspect.isclass(function) else function)
    signature = inspect.signature(function)
    return {
        key: (parameter.default is parameter.empty, hints.get(key, Any))
        for key, parameter in signature.parameters.items()
    }


def _check_value(key: str, value: Any, annotation: Any) -> None:
    if isinstance(value, DictConfig) and "_target_" in value:
        return
    plain = OmegaConf.to_container(value) if OmegaConf.is_config(value) else value
    try:
        check_type(plain, annotation)
    except TypeCheckError:
        wanted = getattr(annotation, "__name__", None) or str(annotation).replace("typing.", "")
        raise ConfigError(f"{key}={plain!r} must be of type {wanted}") from None
