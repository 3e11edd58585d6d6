"""The best config of a menu, as far as climbing from many places can tell."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from random import Random

from agent.menu.files import ProxyMenu
from autoresearch.errors import SpecError
from autoresearch.values import Scalar
from trainer.spec import Config, gpt

Truths = Callable[[Sequence[Config]], Sequence[float | None]]
"""The scores without noise of several configs; None for one that cannot be trained."""

RANDOM_STARTS = 4
PLACES = 13
"""Values tried of a knob, evenly on its scale."""
EDITS = 120
"""Random edits of two or three knobs tried at each step: constraints close many single ones."""


def climb(menu: ProxyMenu, truths: Truths, starts: Sequence[Config]) -> tuple[float, Config]:
    """The best score found, and its config: the steepest way up from each start until no change of
    one knob, and no edit of a few that was tried, is better.

    :param starts: besides the baseline and some random configs.
    """
    rng = Random(0)
    ends = []
    for start in (gpt(menu.baseline), *starts, *_random(menu, rng)):
        (score,) = truths([start])
        if score is not None:
            ends.append(_up(menu, truths, (score, start), rng))
    return min(ends, key=lambda end: end[0])


def _up(
    menu: ProxyMenu, truths: Truths, at: tuple[float, Config], rng: Random
) -> tuple[float, Config]:
    while True:
        around = list(_around(menu, at[1], rng))
        scored = [
            (score, config)
            for score, config in zip(truths(around), around, strict=True)
            if score is not None
        ]
        better = min(scored, key=lambda one: one[0], default=at)
        if better[0] >= at[0] - 1e-9:
            return at
        at = better


def _around(menu: ProxyMenu, config: Config, rng: Random) -> Iterator[Config]:
    names = list(menu.domains)
    edits = [
        {name: domain.rounded(domain.at((place + 0.5) / PLACES))}
        for name, domain in menu.domains.items()
        for place in range(PLACES)
    ]
    edits += [
        {
            name: menu.domains[name].rounded(menu.domains[name].draw(rng))
            for name in rng.sample(names, min(rng.randint(2, 3), len(names)))
        }
        for _ in range(EDITS)
    ]
    for edit in edits:
        edited = allowed(menu, config, edit)
        if edited is not None and edited != config:
            yield edited


def _random(menu: ProxyMenu, rng: Random) -> Iterator[Config]:
    found = 0
    while found < RANDOM_STARTS:
        edit = {name: domain.rounded(domain.draw(rng)) for name, domain in menu.domains.items()}
        config = allowed(menu, gpt(menu.baseline), edit)
        if config is not None:
            found += 1
            yield config


def allowed(menu: ProxyMenu, origin: Config, edit: Mapping[str, Scalar]) -> Config | None:
    """The edited config, where the trainer and the menu's constraints accept it."""
    try:
        config = gpt(menu.apply(origin, edit))
    except SpecError:
        return None
    broken = menu.broken_constraint(config, menu.campaign.budget)
    return config if broken is None else None
