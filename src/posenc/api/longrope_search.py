"""Searches for LongRoPE factors for a finished run, and saves the search in the run's folder.

`<run>/longrope/search-<length>.json` is written after each generation. An interrupted search
resumes from this file and ends with the same factors. The best factors are saved as the swap
`longrope_<length>` in `<run>/longrope`, a folder for `--config-dir`.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any

import yaml
from omegaconf import DictConfig, OmegaConf

from posenc.api.saved_run import training_data
from posenc.check.hook_definitions import nested_encodings
from posenc.config.errors import ConfigError, RunError
from posenc.config.values import json_digest
from posenc.encodings.frequencies import SinusoidalFrequencies
from posenc.evaluation.evaluate import load_model
from posenc.evaluation.factor_search import (
    Factors,
    Generation,
    SearchSize,
    best_candidates,
    initial_factors,
    next_generation,
)
from posenc.evaluation.requests import build_windows
from posenc.evaluation.scoring import measure
from posenc.evaluation.swap import swap_encoding
from posenc.evaluation.windows import Budget, Windows
from posenc.model.device import select_device
from posenc.model.transformer import Decoder
from posenc.runs.files import corrupt_file_error, read_mapping, write_atomic, write_json
from posenc.runs.run_directory import RunDirectory

MIN_POPULATION = 3  # PI, NTK and YaRN
STATE_TYPES = {"settings": dict, "generations": list, "digest": str}
SIZE_KEYS = tuple(field.name for field in fields(SearchSize))
SEARCH_KEYS = ("length", "split", "tokens", "batch_tokens", "seed", *SIZE_KEYS)
"""The settings on which the candidates and their losses depend."""
OnProgress = Callable[[int, int, float], None]
"""Called with the generation, the number of candidates and the lowest loss so far."""


@dataclass(frozen=True)
class FactorSearchResult:
    """The result of a search: the losses of PI, NTK and YaRN, and the best factors."""

    initial_losses: dict[str, float]
    factors: Factors
    loss: float
    candidates: int
    swap_file: Path
    training_overrides: list[str] | None
    """Overrides that train a model with these factors, if the run has plain RoPE."""

    @property
    def config_dir(self) -> Path:
        """The folder that contains the swap, to pass as `--config-dir`."""
        return self.swap_file.parents[2]


def search_factors(
    run: RunDirectory,
    config: DictConfig,
    request: DictConfig,
    on_progress: OnProgress,
    print_message: Callable[[str], None],
) -> FactorSearchResult:
    """Start or continue a search with the settings in `request` (conf/search_factors.yaml).

    Raises ConfigError for settings that are invalid or incompatible with the run, and RunError if
    weights are missing, the saved search is corrupt or a loss is not finite.
    """
    _check_request(request, config)
    data = training_data(config, "train a model on the current corpus", print_message)
    data.check_length(request.split, request.length)
    key = {"protocol": "nonoverlapping", "split": request.split, "length": request.length}
    windows = build_windows(data, key)
    model = load_model(run, config, data.vocab_size, select_device(config))
    initial = _initial_candidates(model, config.train_length, request.length)
    loss = partial(_loss, model, model.encoding, config, request, windows)
    state_file = run.path / "longrope" / f"search-{request.length}.json"
    settings = {"run": config.planned.hash, **{key: request[key] for key in SEARCH_KEYS}}
    size = SearchSize(**{key: request[key] for key in SIZE_KEYS})
    propose = partial(
        next_generation,
        initial_candidates=list(initial.values()),
        factor=request.length / config.train_length,
        size=size,
        seed=request.seed,
    )
    generations = _read_generations(state_file, settings, propose, loss)
    while len(generations) <= request.generations:
        generations.append(propose(generations, loss=loss))
        _write_generations(state_file, settings, generations)
        evaluated = sum(map(len, generations))
        on_progress(len(generations) - 1, evaluated, best_candidates(generations, 1)[0][1])
    generations = generations[: request.generations + 1]
    ((factors, lowest),) = best_candidates(generations, 1)
    losses = dict(generations[0])
    return FactorSearchResult(
        {name: losses[candidate] for name, candidate in initial.items()},
        factors,
        lowest,
        sum(map(len, generations)),
        _write_swap(run, request.length, factors, lowest),
        _longrope_overrides(config, factors),
    )


def _check_request(request: DictConfig, config: DictConfig) -> None:
    """Raise ConfigError for a setting that is out of range or incompatible with the run."""
    if request.population < MIN_POPULATION:
        raise ConfigError(f"population={request.population} must be at least {MIN_POPULATION}")
    if request.length <= config.train_length:
        raise ConfigError(
            f"length={request.length} must be more than the training length {config.train_length}"
        )
    if request.split == config.evaluation.split:
        raise ConfigError(
            f"split={request.split} is the run's evaluation split, so the evaluation would favor"
            f" the factors found on it; choose another split"
        )


def _initial_candidates(model: Decoder, train_length: int, length: int) -> dict[str, Factors]:
    """Return the factors of PI, NTK and YaRN.

    Raises ConfigError unless the encoding rotates, all its spectra have one base and dimension,
    of at least 4 channels, and it supports the length.
    """
    limit = model.encoding.max_length()
    modules = [m for m in model.encoding.modules() if isinstance(m, SinusoidalFrequencies)]
    spectra: set[tuple[int, float]] = {
        (m.dim, getattr(m.spectrum, "keywords", {}).get("base", 10000.0)) for m in modules
    }
    rotates = any(item.overrides("rotate") for item in nested_encodings(model.encoding))
    if not rotates or len(spectra) != 1 or modules[0].dim < 4:
        raise ConfigError(
            "LongRoPE factors need a rotary encoding with a single spectrum of at least 4 channels;"
            " choose a run with encoding=rope"
        )
    if limit is not None and limit < length:
        raise ConfigError(
            f"length={length} exceeds the encoding's limit of {limit} positions; use a shorter"
            f" length"
        )
    ((dim, base),) = spectra
    return initial_factors(dim, train_length, base, length / train_length)


def _loss(
    model: Decoder,
    trained_encoding: Any,
    config: DictConfig,
    request: DictConfig,
    windows: Windows,
    factors: Factors,
) -> float:
    """Return the mean loss in nats that `posenc evaluate` measures with these LongRoPE factors."""
    name, node = f"longrope_{request.length}", OmegaConf.create(_swap(factors))
    encoding = swap_encoding(trained_encoding, config, name, node, request.length)
    model.encoding = encoding.to(model.device)
    result = measure(
        model,
        windows,
        batch_tokens=request.batch_tokens,
        precision=config.precision,
        on_batch=lambda tokens, seconds: True,
        budget=Budget(tokens=request.tokens),
    )
    loss = float(result.sums.sum()) / int(result.counts.sum()) if result else math.nan
    if not math.isfinite(loss):
        raise RunError(f"the loss is not finite in windows of {request.length} tokens")
    return loss


def _swap(factors: Factors) -> dict[str, Any]:
    """Return the swap with these factors; `factor: 1` sets the attention factor to 1."""
    target = "posenc.encodings.spectra.longrope"
    return {"_target_": target, "factor": 1, "long_factor": list(factors)}


def _read_generations(
    file: Path,
    settings: dict[str, Any],
    propose: Callable[..., Generation],
    loss: Callable[[Factors], float],
) -> list[Generation]:
    """Return the generations of an earlier search, or an empty list if there is none.

    Raises ConfigError if the search had different settings, and RunError if the file is corrupt: if
    its candidates are not those that `propose` derives from its settings and losses, or if `loss`
    no longer returns the saved loss of the best candidate.
    """
    if not file.exists():
        return []
    state: dict[str, Any] = {"settings": {}, "generations": [], **read_mapping(file, STATE_TYPES)}
    for key, value in settings.items():
        if state["settings"].get(key) != value:
            raise ConfigError(
                f"{file} has a search with {key}={state['settings'].get(key)} instead of {value};"
                f" use the same settings to continue it, or delete the file to start again"
            )
    generations: list[Generation] = []
    try:
        digest = json_digest([state["settings"], state["generations"]])
        if state.get("digest") not in (None, digest):
            raise ValueError("it has been edited")
        for saved in state["generations"]:
            losses = {tuple(factors): value for factors, value in saved}
            generations.append(propose(generations, loss=losses.__getitem__))
            if len(saved) != len(generations[-1]) or {type(value) for _, value in saved} != {float}:
                raise ValueError("wrong number of candidates, or a loss that is not a float")
    except KeyError:
        error = "its candidates do not follow from its settings"
        raise corrupt_file_error(file, error) from None
    except (TypeError, ValueError) as error:
        raise corrupt_file_error(file, error) from None
    for factors, lowest in best_candidates(generations, 1):
        if not math.isclose(measured := loss(factors), lowest, rel_tol=1e-4):
            error = f"its lowest loss is {lowest:.6f}, but measuring it again gives {measured:.6f}"
            raise corrupt_file_error(file, error)
    return generations


def _write_generations(file: Path, settings: dict[str, Any], generations: list[Generation]) -> None:
    digest = json_digest([settings, generations])
    write_json(file, {"settings": settings, "generations": generations, "digest": digest})


def _write_swap(run: RunDirectory, length: int, factors: Factors, loss: float) -> Path:
    file = run.path / "longrope" / "evaluation" / "swap" / f"longrope_{length}.yaml"
    comment = f"# LongRoPE factors for {length} tokens; loss in the search: {loss:.6f}."
    write_atomic(file, f"{comment}\n{yaml.safe_dump(_swap(factors), sort_keys=False)}")
    return file


def _longrope_overrides(config: DictConfig, factors: Factors) -> list[str] | None:
    """Return overrides for `encoding=longrope` with these factors.

    Returns None if the run does not use plain RoPE.
    """
    encoding = config.encoding
    if config.choices.encoding != "rope" or encoding.get("rotary_fraction") != 1:
        return None
    return [
        "encoding=longrope",
        f"encoding.factors=[{','.join(map(repr, factors))}]",
        "encoding.start_tokens=0",
        f"encoding.layout={encoding.layout}",
        f"encoding.spectrum.base={encoding.spectrum.base}",
    ]
