"""What a ladder claims, held against the truth in simulated worlds (:mod:`bench.ladder_worlds`).

For ladders of four and of five rungs: how many 95 % intervals of the lead's change and of the lead
hold, how often a lead that stays is said to move, how often a melting of the size that the ladder
says it could see is seen, and how far off the prediction of the largest rung is, with how many of
its intervals that hold.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, median

from bench.figure import Figure
from bench.ladder_worlds import NOW, VOCAB, Trainer, World, plan, trained
from funnel.ladder.lead import Lead, fit_lead
from funnel.ladder.points import lead_points, points_of
from funnel.ladder.prediction import largest_runs, make_prediction
from trajectory.ladder_plan import LadderPlanRow

LADDERS = 200
PREDICTED = 40
"""Ladders whose largest rung is predicted: two fits of a law each."""
COVERAGE_GOAL = (92, 98)
FALSE_GOAL = 7
SEEN_GOAL = (70, 90)
ERROR_GOAL = 1.0


def run() -> list[Figure]:
    """All figures; some minutes."""
    return [figure for rungs in (4, 5) for figure in _of(plan(rungs), rungs)]


def _of(of: LadderPlanRow, rungs: int) -> list[Figure]:
    still, melting = World(), World().melting(0.25)
    holding = _leads(still, of, 0)
    visible = median(lead.visible_bpb for lead in holding)
    moved = [lead.course in {"grows", "melts"} for lead in holding]
    just = _leads(World(per_tenfold=-visible), of, 10_000)
    seen = 100 * fmean(lead.course == "melts" for lead in just)
    share = 100 * visible / still.lead
    errors, held = _predictions(still, of)
    false = 100 * fmean(moved)
    where = f"{rungs} rungs, {LADDERS} ladders; lead 0.08 bpb, a run's luck 0.005, a rung's 0.003"
    return [
        _coverage(f"lead's change, {rungs} rungs", _held(holding, still), where),
        _coverage(
            f"lead's change where it melts, {rungs} rungs",
            _held(_leads(melting, of, 20_000), melting),
            where,
        ),
        Figure(
            f"a lead that stays said to move, {rungs} rungs",
            false,
            "%",
            f"<= {FALSE_GOAL}",
            false <= FALSE_GOAL,
            where,
        ),
        Figure(
            f"melting of the stated visible size seen, {rungs} rungs",
            seen,
            "%",
            "{} to {}".format(*SEEN_GOAL),
            SEEN_GOAL[0] <= seen <= SEEN_GOAL[1],
            f"{share:.0f} % of the lead with every tenfold of compute; 80 % is what is said",
        ),
        Figure(
            f"largest rung's median error, {rungs} rungs",
            median(errors),
            "%",
            f"<= {ERROR_GOAL:g}",
            median(errors) <= ERROR_GOAL,
            f"{PREDICTED} ladders, both recipes",
        ),
        _coverage(f"largest rung's prediction, {rungs} rungs", held, f"{PREDICTED} ladders"),
    ]


def _leads(world: World, of: LadderPlanRow, first: int) -> list[Lead]:
    found: list[Lead] = []
    for seed in range(first, first + LADDERS):
        points, _ = points_of(trained(world, of, seed), of, VOCAB)
        lead = fit_lead(list(lead_points(points)))
        assert lead is not None
        found.append(lead)
    return found


def _held(leads: Sequence[Lead], world: World) -> list[bool]:
    return [lead.per_tenfold_low <= world.per_tenfold <= lead.per_tenfold_high for lead in leads]


def _predictions(world: World, of: LadderPlanRow) -> tuple[list[float], list[bool]]:
    """Errors in percent, and whether the interval held the run."""
    errors: list[float] = []
    held: list[bool] = []
    for seed in range(PREDICTED):
        made = make_prediction(
            trained(world, of, seed, largest=False), of, vocab_size=VOCAB, seed=0, at=NOW
        )
        assert not isinstance(made, str), made
        trainer = Trainer(world, of, seed)
        for run, loss in zip(largest_runs(of), made.predicted, strict=True):
            seen = trainer.bpb(run, run.seeds[0])
            errors.append(100 * abs(loss.middle / seen - 1))
            held.append(loss.low <= seen <= loss.high)
    return errors, held


def _coverage(name: str, held: Sequence[bool], where: str) -> Figure:
    low, high = COVERAGE_GOAL
    share = 100 * fmean(held)
    return Figure(
        f"95 % intervals of {name}, that hold",
        share,
        "%",
        f"{low} to {high}",
        low <= share <= high,
        where,
    )
