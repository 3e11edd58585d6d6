"""Build a campaign's rows from its configs' scores alone."""

from collections.abc import Iterator

from tests.support.rows import baseline_row, campaign_row, failed, iteration_row, ok, trial
from trainer.schema import Config
from trajectory.rows import Row


def rows_of(scores: dict[Config, list[float | None]]) -> Iterator[Row]:
    """Yield the rows, the baseline first; scores are those of the first seeds, None for a
    failure."""
    yield campaign_row()
    number = 0
    for position, (of, values) in enumerate(scores.items()):
        trials = []
        for seed, value in enumerate(values):
            number += 1
            if position == 0 and value is not None:
                yield baseline_row(number, value, seed, of)
            trials.append(trial(number, of, seed, failed() if value is None else ok(value)))
        if position:
            yield iteration_row(position, of, tuple(trials))
