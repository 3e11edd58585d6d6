"""Provide a proposer's memory after simulated iterations over a shipped menu."""

import json
from dataclasses import replace
from random import Random
from typing import Any

from agent.menu.files import ProxyMenu, load_menu
from agent.menu.rails import Rails
from agent.proposers.base import SearchView
from autoresearch.errors import SpecError
from autoresearch.values import Scalar
from tests.support.rows import baseline_row, failed, iteration_row, ok, trial
from trainer.schema import Budget, Config
from trajectory.evidence import Evidence
from trajectory.rows import Decision

MENU = load_menu("cpu-tiny")
RAILS = Rails(MENU, budget=Budget())


def constants(*without: str) -> str:
    """Return a ``[constants]`` table of the menu's baseline without these fields."""
    fields = MENU.baseline.canonical().items()
    lines = (f"{name} = {json.dumps(one)}\n" for name, one in fields if name not in without)
    return f"[constants]\n{''.join(lines)}"


def raw(changes: dict[str, Any], reason: str = "because") -> str:
    """Return a reply that proposes these changes."""
    return json.dumps({"changes": changes, "reason": reason})


def fresh_memory(menu: ProxyMenu = MENU) -> SearchView:
    """Return the memory before the first iteration, with the baseline measured on five seeds."""
    evidence = Evidence()
    for seed in range(5):
        evidence.add(baseline_row(seed, 3.9 + 0.02 * seed, seed, menu.baseline))
    return SearchView(menu, menu.baseline, evidence, iter=1, seed=7, max_changes=3)


def remember(
    view: SearchView, changes: dict[str, Scalar], score: float | None, reason: str = "a guess"
) -> SearchView:
    """Return the memory one iteration later: these changes gave this val_bpb, or failed for
    None."""
    config = view.menu.apply(view.reference, changes)
    return _one_later(view, config, changes, score, reason)


def memory_of(iterations: int, seed: int = 0, *, failing: float = 0.1) -> SearchView:
    """Return the memory after this many random iterations, with the best learning rate near
    6e-3."""
    rng = Random(seed)
    view = fresh_memory()
    while view.iter <= iterations:
        names = rng.sample(list(MENU.knobs), rng.randint(1, 3))
        changes = {name: MENU.domains[name].draw(rng) for name in names}
        try:
            config = MENU.apply(view.reference, changes)
        except SpecError:
            continue
        if config.config_hash in view.evidence.configs:
            continue
        score = None if rng.random() < failing else _score(config, rng)
        view = _one_later(view, config, changes, score, "a guess")
    return view


def _score(config: Config, rng: Random) -> float:
    off = abs(config.lr - 6e-3) / 6e-3
    return 3.7 + 0.1 * min(off, 4) + rng.gauss(0, 0.01)


def _one_later(
    view: SearchView, config: Config, changes: dict[str, Scalar], score: float | None, reason: str
) -> SearchView:
    result = failed() if score is None else ok(score)
    row = iteration_row(
        view.iter,
        config,
        (trial(view.iter, config, 0, result),),
        changes=changes,
        reason=reason,
        decision=Decision(action="discard"),
    )
    view.evidence.add(row)
    return replace(view, iter=view.iter + 1)
