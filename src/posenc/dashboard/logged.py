"""What the runs of an experiment log, read from their own files: panels show nothing else."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from omegaconf import DictConfig

from posenc.runs.evaluation_rows import read_positions
from posenc.runs.run_directory import RunDirectory, runs_of
from posenc.tracking.figures import figure_key
from posenc.tracking.identity import run_config, variant
from posenc.tracking.journal import Journal
from posenc.tracking.media import IMAGE, TABLE
from posenc.tracking.points import AXES, evaluation_points, training_point
from posenc.tracking.summary import MAIN_PROTOCOL, run_summary


@dataclass(frozen=True)
class Logged:
    """Names of history metrics, summary scalars, configuration keys, media and report figures.

    `group` is the configuration key whose values are the experiment's encodings.
    """

    history: tuple[str, ...]
    summary: tuple[str, ...]
    config: tuple[str, ...]
    media: tuple[str, ...]
    figures: tuple[str, ...]
    train_lengths: tuple[int, ...]
    group: str

    def curves(self, beginning: str, ending: str) -> list[str]:
        """The history metrics `<beginning>...<ending>`, those of the main protocol first."""
        found = [n for n in self.history if n.startswith(beginning) and n.endswith(ending)]
        return sorted(found, key=lambda name: (name.count("/"), MAIN_PROTOCOL not in name, name))


def read_logged(folder: Path) -> Logged:
    """What `posenc sync` uploads of the runs in `folder` that have been evaluated."""
    runs = [run for run in runs_of(folder) if run.rows()]
    configs = [run.config() for run in runs]
    encodings = {config.choices.encoding for config in configs}
    alone = len({variant(config) for config in configs}) == len(encodings)
    pairs = list(zip(runs, configs, strict=True))
    arrays = any(run.positions_file.exists() for run in runs)
    return Logged(
        history=_history(pairs),
        summary=tuple(dict.fromkeys(key for pair in pairs for key in run_summary(*pair))),
        config=tuple(dict.fromkeys(key for pair in pairs for key in _flat(*pair))),
        media=(TABLE, IMAGE) if arrays else (),
        figures=tuple(figure_key(file) for file in sorted((folder / "report").glob("*.png"))),
        train_lengths=tuple(sorted({config.train_length for config in configs})),
        group="encoding" if alone else "variant",
    )


def _flat(run: RunDirectory, config: DictConfig) -> list[str]:
    return [*(key for key in run_config(run, config) if key != "config"), *Journal(run).git]


def _history(pairs: Sequence[tuple[RunDirectory, DictConfig]]) -> tuple[str, ...]:
    names: dict[str, None] = {}
    for run, config in pairs:
        points = [training_point(row) for row in run.metrics()]
        points += evaluation_points(run.rows(), read_positions(run.positions_file), config)
        names |= {name: None for point in points for name in point if name not in AXES}
    return tuple(names)
