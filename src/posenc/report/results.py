"""Everything that a report shows, before it is text."""

from collections.abc import Sequence
from dataclasses import dataclass

from posenc.report.collect import Experiment
from posenc.report.curves import Panel
from posenc.report.picture import Picture
from posenc.report.tables import Table


@dataclass(frozen=True)
class Results:
    """`lengths` are panels of losses and `tasks` panels of accuracies, each with its table."""

    experiment: Experiment
    lengths: Sequence[Panel]
    tasks: Sequence[Panel]
    length_tables: Sequence[Table]
    task_tables: Sequence[Table]
    pictures: Sequence[Picture]

    @property
    def panels(self) -> list[Panel]:
        return [*self.lengths, *self.tasks]

    @property
    def tables(self) -> list[Table]:
        return [*self.task_tables, *self.length_tables]
