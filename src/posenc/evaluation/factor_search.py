"""The evolutionary search for LongRoPE's factors (Ding et al. 2024, arXiv:2402.13753, algorithm 1).

A candidate has one factor per pair of channels, by which the pair's frequency is divided. Factors
do not decrease from high to low frequencies and lie between 1 and 1 + s, where s is the target
length divided by the training length. The step, the mutation probability and the bounds are those
of the authors' code (github.com/microsoft/LongRoPE, folder `evolution`).
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from posenc.encodings.spectra import geometric, yarn
from posenc.encodings.spectra.longrope import ntk_factors

Factors = tuple[float, ...]
Generation = list[tuple[Factors, float]]
"""The candidates that are new in a generation, with their losses."""

GRID_STEP = 0.01
"""Step size of the grid from which mutated factors are drawn."""
DECIMALS = 6
MUTATION_PROBABILITY = 0.3
"""The probability that a factor is mutated or, in a crossover, comes from the second parent."""
MAX_TRIES = 20
"""Maximum number of attempts to make a new candidate from the same parents."""


@dataclass(frozen=True)
class SearchSize:
    """Numbers of candidates; the fields are keys of `posenc search-factors`."""

    population: int
    parents: int
    mutations: int
    crossovers: int


def initial_factors(
    width: int, train_length: int, base: float, factor: float
) -> dict[str, Factors]:
    """Return the factors of PI, NTK-aware scaling and YaRN for `width` rotated channels."""
    original, _ = geometric(width, train_length, train_length, base=base)
    rescaled, _ = yarn(width, train_length, train_length, base=base, factor=factor)
    return {
        "pi": (round(factor, DECIMALS),) * (width // 2),
        "ntk": _rounded_factors(ntk_factors(width, factor)),
        "yarn": _rounded_factors(original / rescaled),
    }


def next_generation(
    generations: Sequence[Generation],
    initial_candidates: Collection[Factors],
    factor: float,
    size: SearchSize,
    seed: int,
    loss: Callable[[Factors], float],
) -> Generation:
    """Return the candidates of the generation after `generations`, with their losses.

    The first generation consists of `initial_candidates` and mutations of them. Later ones consist
    of mutations and crossovers of the best candidates so far. The random numbers depend only on
    `seed` and the number of generations, so a search can be resumed from its generations.
    """
    rng = np.random.default_rng([seed, len(generations)])
    known = {factors for generation in generations for factors, _ in generation}
    new: list[Factors] = []

    def add(factors: Factors) -> None:
        if factors not in known:
            known.add(factors)
            new.append(factors)

    if generations:
        parents = [factors for factors, _ in best_candidates(generations, size.parents)]
        for _ in range(size.mutations):
            add(mutate(parents[rng.integers(len(parents))], factor, known, rng))
        for _ in range(size.crossovers):
            first, second = (parents[i] for i in sorted(rng.integers(len(parents), size=2)))
            add(crossover(first, second, known, rng) or mutate(first, factor, known, rng))
    else:
        for factors in initial_candidates:
            add(factors)
        originals = list(new)
        for _ in range(size.population - len(originals)):
            add(mutate(originals[rng.integers(len(originals))], factor, known, rng))
    return [(factors, loss(factors)) for factors in new]


def best_candidates(generations: Sequence[Generation], count: int) -> Generation:
    """Return the `count` candidates with the lowest losses; ties keep the order of creation."""
    return sorted((c for generation in generations for c in generation), key=lambda c: c[1])[:count]


def mutate(
    factors: Factors, factor: float, known: Collection[Factors], rng: np.random.Generator
) -> Factors:
    """Return a candidate in which random factors are redrawn between their neighbors.

    This is repeated until the candidate is not in `known`, at most MAX_TRIES times.
    """
    values = [1.0, *factors, max(1 + factor, factors[-1])]
    for _ in range(MAX_TRIES):
        for index in range(1, len(values) - 1):
            if rng.random() < MUTATION_PROBABILITY:
                low, high = values[index - 1], values[index + 1]
                steps = int(rng.integers(int((high - low) / GRID_STEP) + 1))
                values[index] = min(round(low + GRID_STEP * steps, DECIMALS), high)
        if tuple(values[1:-1]) not in known:
            break
    return tuple(values[1:-1])


def crossover(
    first: Factors, second: Factors, known: Collection[Factors], rng: np.random.Generator
) -> Factors | None:
    """Return `first` with random factors from `second`; None if no attempt is valid and new."""
    for _ in range(MAX_TRIES):
        chosen = rng.random(len(first)) < MUTATION_PROBABILITY
        child = tuple(np.where(chosen, second, first).tolist())
        if child not in known and list(child) == sorted(child):
            return child
    return None


def _rounded_factors(values: Tensor) -> Factors:
    return tuple(round(value, DECIMALS) for value in values.tolist())
