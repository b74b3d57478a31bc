"""From a configuration to a model."""

import torch
from omegaconf import DictConfig

from posenc.attention import kernel, resolve
from posenc.config.components import build, check
from posenc.config.errors import ConfigError
from posenc.encodings.base import Encoding, Geometry
from posenc.model.decoder import Decoder
from posenc.model.transformer import initialise, seed_of


def build_model(config: DictConfig, vocabulary: int) -> Decoder:
    """The model that `config` describes, initialised from its seed.

    ConfigError names what cannot be built: heads that do not divide the width, a knob that an
    encoding refuses.
    """
    modules = list(config.get("modules") or [])
    model = _assembled(config, vocabulary, build_encoding(config, modules))
    initialise(model, config.seed)
    return model


def skeleton(config: DictConfig, vocabulary: int) -> Decoder:
    """The model on the meta device: shapes and no numbers, the encoding's aside."""
    encoding = build_encoding(config, list(config.modules))
    with torch.device("meta"):
        return _assembled(config, vocabulary, encoding)


def _assembled(config: DictConfig, vocabulary: int, encoding: Encoding) -> Decoder:
    given, modules = (vocabulary, encoding, kernel(resolve(config.kernel))), config.get("modules")
    return build(config.model, *given, name="model", modules=list(modules or []))


def build_encoding(config: DictConfig, modules: list[str]) -> Encoding:
    """The encoding, its own parameters drawn from the run's seed."""
    check(config.model, name="model", modules=modules, num_args=3)
    try:
        geometry = Geometry(
            width=config.model.width,
            heads=config.model.heads,
            layers=config.model.layers,
            train_length=config.train_length,
        )
    except ValueError as error:
        raise ConfigError(f"model: {error}") from None
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed_of(config.seed, "encoding"))
        encoding = build(config.encoding, geometry, name="encoding", modules=modules)
    if not isinstance(encoding, Encoding):
        raise ConfigError(
            f"encoding: {type(encoding).__name__} is no posenc.encodings.base.Encoding"
        )
    return encoding
