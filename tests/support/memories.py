"""Provide a proposer's memory after simulated iterations over a shipped menu."""

import json
from dataclasses import replace
from random import Random
from typing import Any

from agent.menu.files import ProxyMenu, load_menu
from agent.menu.rails import Rails
from agent.proposers.base import Memory
from autoresearch.errors import SpecError
from autoresearch.values import Scalar
from tests.support.rows import baseline_row, failed, iteration_row, ok, trial
from trainer.spec import Budget, Config
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


def fresh_memory(menu: ProxyMenu = MENU) -> Memory:
    """Return the memory before the first iteration, with the baseline measured on five seeds."""
    evidence = Evidence()
    for seed in range(5):
        evidence.add(baseline_row(seed, 3.9 + 0.02 * seed, seed, menu.baseline))
    return Memory(menu, menu.baseline, evidence, iter=1, seed=7, max_changes=3)


def remember(
    memory: Memory, changes: dict[str, Scalar], score: float | None, reason: str = "a guess"
) -> Memory:
    """Return the memory one iteration later: these changes gave this val_bpb, or failed for
    None."""
    config = memory.menu.apply(memory.reference, changes)
    return _one_later(memory, config, changes, score, reason)


def memory_of(iterations: int, seed: int = 0, *, failing: float = 0.1) -> Memory:
    """Return the memory after this many random iterations, with the best learning rate near
    6e-3."""
    rng = Random(seed)
    memory = fresh_memory()
    while memory.iter <= iterations:
        names = rng.sample(list(MENU.knobs), rng.randint(1, 3))
        changes = {name: MENU.domains[name].draw(rng) for name in names}
        try:
            config = MENU.apply(memory.reference, changes)
        except SpecError:
            continue
        if config.config_hash in memory.evidence.configs:
            continue
        score = None if rng.random() < failing else _score(config, rng)
        memory = _one_later(memory, config, changes, score, "a guess")
    return memory


def _score(config: Config, rng: Random) -> float:
    off = abs(config.lr - 6e-3) / 6e-3
    return 3.7 + 0.1 * min(off, 4) + rng.gauss(0, 0.01)


def _one_later(
    memory: Memory, config: Config, changes: dict[str, Scalar], score: float | None, reason: str
) -> Memory:
    result = failed() if score is None else ok(score)
    row = iteration_row(
        memory.iter,
        config,
        (trial(memory.iter, config, 0, result),),
        changes=changes,
        reason=reason,
        decision=Decision(action="discard"),
    )
    memory.evidence.add(row)
    return replace(memory, iter=memory.iter + 1)
