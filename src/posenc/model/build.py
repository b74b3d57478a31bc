"""Builds the encoding and the model that a configuration describes."""

import torch
from omegaconf import DictConfig

from posenc.attention.choice import get_kernel
from posenc.config.components import build, check
from posenc.config.errors import ConfigError
from posenc.encodings.base import Encoding, Geometry
from posenc.model.transformer import Decoder, initialise, seed_of


def build_model(config: DictConfig, vocab_size: int, encoding: Encoding | None = None) -> Decoder:
    """Return the model that `config` describes, with weights drawn from its seed.

    `encoding` is the untrained encoding of `config`, if the caller has already built it. Raises
    ConfigError for parameters that the model or the encoding rejects, such as a number of
    heads that does not divide the width.
    """
    encoding = encoding or build_encoding(config, list(config.get("modules") or []))
    model = _build_decoder(config, vocab_size, encoding)
    initialise(model, config.seed)
    return model


def build_meta_model(
    config: DictConfig, vocab_size: int, encoding: Encoding | None = None
) -> Decoder:
    """Return the model on the meta device; only the encoding has real weights.

    `encoding` is the encoding of `config`, if the caller has already built it.
    """
    encoding = encoding or build_encoding(config, list(config.modules))
    with torch.device("meta"):
        return _build_decoder(config, vocab_size, encoding)


def _build_decoder(config: DictConfig, vocab_size: int, encoding: Encoding) -> Decoder:
    modules = list(config.get("modules") or [])
    attend = get_kernel(config.kernel)
    return build(config.model, vocab_size, encoding, attend, name="model", modules=modules)


def build_encoding(config: DictConfig, modules: list[str]) -> Encoding:
    """Return the encoding, with parameters drawn from the run's seed.

    Raises ConfigError if the encoding rejects its parameters or is not an `Encoding`.
    """
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
            f"encoding: {type(encoding).__name__} is not a posenc.encodings.base.Encoding"
        )
    return encoding
