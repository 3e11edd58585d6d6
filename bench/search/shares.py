"""Compare first shares of a language model by the turns that good and harmful ones then get.

``python -m bench.search.shares`` takes seconds: it draws credits instead of running campaigns.
Their means and spreads are those seen in :mod:`bench.search.slates`.
"""

from collections.abc import Mapping
from random import Random
from statistics import fmean

from agent.proposers.hybrid import drawn, prior_mean
from bench.figure import Figure
from trajectory.track_record import MOST, Credit

SHARES = (0.1, 0.2, 0.3, 0.5)
MODELS: Mapping[str, tuple[float, float]] = {
    "harmful": (-1.0, 0.8),
    "random": (0.0, 1.1),
    "half-good": (0.5, 1.1),
}
"""Mean and standard deviation of a turn's credit, above chance."""
CHANCE_SD = 1.1
EARLY_ERROR, FADES = -0.7, 30
"""The surrogate's error before it knows failures, and the iterations in which it fades."""
STAGES = (20, 40, 100)
REPEATS = 1000


def taken_by(rng: Random, share: float, model: tuple[float, float]) -> list[int]:
    """Return the model's turns after each stage of one night."""
    search, pick = Credit(), Credit()
    prior = prior_mean(share)
    taken, stages = 0, []
    for iteration in range(1, STAGES[-1] + 1):
        chosen = drawn(rng, pick, prior) > drawn(rng, search)
        error = EARLY_ERROR * max(0.0, 1 - iteration / FADES)
        credit = error + (rng.gauss(*model) if chosen else rng.gauss(0, CHANCE_SD))
        credit = min(max(credit, -MOST), MOST)
        if chosen:
            taken, pick = taken + 1, pick.after(credit)
        else:
            search = search.after(credit)
        if iteration in STAGES:
            stages.append(taken)
    return stages


def run() -> list[Figure]:
    """Return each model's mean turns of 100 at each share."""
    figures = []
    for share in SHARES:
        for name, model in MODELS.items():
            nights = [taken_by(Random(number), share, model) for number in range(REPEATS)]
            stages = [fmean(stage) for stage in zip(*nights, strict=True)]
            note = ", ".join(
                f"{mean:.1f} of {count}" for mean, count in zip(stages, STAGES, strict=True)
            )
            figures.append(
                Figure(f"{name} model, first share {share:g}", stages[-1], "", note=note)
            )
    return figures


if __name__ == "__main__":
    for figure in run():
        print(f"{figure.name}: {figure.note}")
