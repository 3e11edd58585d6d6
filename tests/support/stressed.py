"""Provide campaigns after a stress test, without training anything.

Their curves are drawn from a law that the test knows.
"""

import math
import random
from collections.abc import Callable, Sequence
from pathlib import Path

from agent.menu.files import load_menu
from tests.support.rows import at, baseline_row, campaign_row, iteration_row, ok, trial
from trainer.spec import Budget, Config, CurvePoint
from trainer.training.schedule import Schedule
from trajectory.rows import (
    Decision,
    Finalist,
    FinalistsRow,
    Row,
    StressRow,
    StressVerdict,
    dump_row,
)

Loss = Callable[[float], float]
"""A function from tokens to nats per token."""


def law(floor: float = 2.0, amplitude: float = 3.0, exponent: float = 0.3) -> Loss:
    """Return ``floor + amplitude × (tokens / 10,000)^-exponent``."""
    return lambda tokens: floor + amplitude * (tokens / 1e4) ** -exponent


def curve(
    of: Config,
    loss: Loss,
    *,
    seed: int = 0,
    steps: int = 1000,
    noise: float = 0.05,
    level_sd: float = 0.0,
) -> list[CurvePoint]:
    """Return a long run's curve; ``seed`` determines its noise and the run's own level."""
    rng = random.Random(seed)
    level = math.exp(rng.gauss(0, level_sd))
    schedule = Schedule(of, Budget(unit="steps", amount=steps), None)
    return [
        CurvePoint(
            step=step,
            tokens=step * of.tokens_per_step,
            loss=loss(step * of.tokens_per_step) * level + rng.gauss(0, noise),
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
    loss: Loss | None = None,
    steps: int = 1000,
    seeds: int = 2,
    standing: int | None = None,
) -> Path:
    """Write a campaign whose configs (the first is the best) all had long runs.

    :param standing: the number of finalists among them; None: all.
    """
    menu = load_menu("cpu-tiny")
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
            record = trial(
                number, of, 900 + seed, ok(2.2 + 0.01 * place + 0.004 * seed, steps=steps), "stress"
            )
            rows.append(
                StressRow(
                    at=at(100 + number),
                    purpose="candidate",
                    rank=place,
                    steps=steps,
                    config=of,
                    config_hash=of.config_hash,
                    trial=record,
                    verdict=StressVerdict(outcome="survives", explanation="nothing happened"),
                )
            )
            folder = directory / "trials" / record.trial_id
            folder.mkdir(parents=True)
            points = curve(of, loss or law(), seed=number, steps=steps)
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
    (directory / "trajectory.jsonl").write_text("".join(dump_row(row) + "\n" for row in rows))
    return directory
