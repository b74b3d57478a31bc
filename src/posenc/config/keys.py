"""Every key of a configuration, and those that nothing reads."""

from collections.abc import Iterator

from omegaconf import DictConfig, OmegaConf

from posenc.config.errors import ConfigError, did_you_mean
from posenc.config.paths import groups


def refuse_strangers(config: DictConfig, known: DictConfig) -> None:
    """ConfigError for keys that `+key=` has added to what `known` has, where nothing reads them."""
    for key in _strangers(config, known):
        if key not in groups():
            raise ConfigError(f"{key}: nothing reads this key{did_you_mean(key, leaves(known))}")


def _strangers(config: DictConfig, known: DictConfig, prefix: str = "") -> Iterator[str]:
    for key in config:
        if key not in known:
            yield f"{prefix}{key}"
            continue
        inner, wanted = config[key], known[key]
        if isinstance(inner, DictConfig) and isinstance(wanted, DictConfig):
            components = {"_target_"} & {*inner, *wanted}
            yield from [] if components else _strangers(inner, wanted, f"{prefix}{key}.")


def leaves(config: DictConfig) -> list[str]:
    """Every key in a configuration, as dotted paths."""
    return _paths("", OmegaConf.to_container(config, resolve=False))[1:]


def _paths(path: str, node: object) -> list[str]:
    if not isinstance(node, dict):
        return [path]
    inner = [_paths(f"{path}.{key}".lstrip("."), child) for key, child in node.items()]
    return [path, *(leaf for leaves in inner for leaf in leaves)]
