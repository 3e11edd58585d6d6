"""Provide campaigns after a stress test, without training anything."""

import random
from collections.abc import Sequence
from pathlib import Path

from agent.menu.files import load_menu
from agent.menu.proxy_menu import ProxyMenu
from tests.support.rows import (
    at,
    baseline_row,
    campaign_row,
    iteration_row,
    ok,
    stress_row,
    trial,
    write_journal,
)
from trainer.schema import Budget, Config, CurvePoint
from trainer.training.schedule import Schedule
from trajectory.rows import (
    Decision,
    Finalist,
    FinalistsRow,
    Row,
)


def curve(of: Config, *, seed: int, steps: int) -> list[CurvePoint]:
    """Return a long run's curve, a power law of the tokens; ``seed`` determines its noise."""
    rng = random.Random(seed)
    schedule = Schedule(of, Budget(unit="steps", amount=steps), None)
    return [
        CurvePoint(
            step=step,
            tokens=step * of.tokens_per_step,
            loss=2.0 + 3.0 * (step * of.tokens_per_step / 1e4) ** -0.3 + rng.gauss(0, 0.05),
            lr=schedule.lr(step, 0.0),
            grad_norm=1.0,
            elapsed_s=0.01 * step,
        )
        for step in range(1, steps + 1)
    ]


def stressed_campaign(
    directory: Path,
    configs: Sequence[Config],
    *,
    steps: int = 1000,
    seeds: int = 2,
    standing: int | None = None,
    menu: ProxyMenu | None = None,
) -> Path:
    """Write a campaign whose configs (the first is the best) all had long runs.

    :param standing: the number of finalists among them; None: all.
    :param menu: None: cpu-tiny.
    """
    menu = menu or load_menu("cpu-tiny")
    first = campaign_row().model_copy(
        update={"menu_toml": menu.toml, "menu_sha256": menu.sha256, "menu_name": menu.name}
    )
    rows: list[Row] = [first]
    rows += [baseline_row(number, 3.1 + 0.02 * number, number, menu.baseline) for number in (1, 2)]
    number = 2
    for place, of in enumerate(configs, start=1):
        number += 1
        rows.append(
            iteration_row(
                place,
                of,
                (trial(number, of, 1, ok(2.8 + 0.02 * place)),),
                decision=Decision(action="keep" if place == 1 else "discard"),
            )
        )
    finalists = []
    for place, of in enumerate(configs, start=1):
        for seed in range(seeds):
            number += 1
            score = 2.2 + 0.01 * place + 0.004 * seed
            row = stress_row(number, of, 900 + seed, score, rank=place, steps=steps)
            rows.append(row)
            folder = directory / "trials" / row.trial.trial_id
            folder.mkdir(parents=True)
            points = curve(of, seed=number, steps=steps)
            (folder / "curve.jsonl").write_text(
                "".join(point.model_dump_json() + "\n" for point in points)
            )
        finalists.append(
            Finalist(
                config_hash=of.config_hash,
                objective=2.202 + 0.01 * place,
                runs=seeds,
                stderr=0.01 if seeds > 1 else None,
            )
        )
    rows.append(FinalistsRow(at=at(999), steps=steps, finalists=tuple(finalists[:standing])))
    write_journal(directory / "trajectory.jsonl", rows)
    return directory
