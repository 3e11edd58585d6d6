"""A launch plan ends with a verdict: GO, NOT YET or DO NOT LAUNCH, and its exit code."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent.menu.files import load_menu
from funnel.ladder.points import LadderLog
from funnel.ladder.result import LadderResult, make_prediction, read_ladder
from funnel.plan.case import LaunchCase, read_case
from funnel.plan.projection import project
from funnel.plan.risks import against, verdict_of
from funnel.targets.architecture import load_target
from tests.support.campaigns import installed
from tests.support.configs import config
from tests.support.ladder_worlds import NOW, VOCAB, WINNER, Trainer, World
from tests.support.ladder_worlds import plan as ladder_plan
from tests.support.places import NIGHT
from tests.support.plans import plan_of
from tests.support.present import known
from tests.support.rows import at
from tests.support.stressed import stressed_campaign
from trajectory.confirmed import Confirmed, ConfirmedConfig, FreshGain
from trajectory.longruns import Pair, RankingTest
from trajectory.rows import (
    ConfirmedRow,
    Finalist,
    FinalistsRow,
    LadderPredictionRow,
    Row,
    dump_row,
)
from trajectory.statistics.fidelity import fidelity


def gain(delta: float) -> FreshGain:
    return FreshGain(
        text="the end of the corpus", holds_for="text like it", delta=delta, lo=delta - 0.05,
        hi=delta + 0.05, all_lo=delta - 0.07, all_hi=delta + 0.07, seeds=6, dof=10,
    )  # fmt: skip


def confirmation(delta: float) -> Confirmed:
    one = ConfirmedConfig(
        config_hash=WINNER.config_hash, iter=1, rank=1, changes={"lr": 4e-3}, claimed=delta,
        claimed_lo=delta, claimed_hi=delta, gains=(gain(delta),),
    )  # fmt: skip
    return Confirmed(seeds=(1, 2, 3, 4, 5, 6), texts=(), configs=(one,))


def ladder_rows(world: World) -> list[Row]:
    """Return a whole ladder of the winner and the baseline, with its prediction."""
    plan = ladder_plan(4, 0.2)
    trainer, log = Trainer(world, plan, seed=4), LadderLog(plans=[plan])
    rows: list[Row] = [plan]
    prediction: LadderPredictionRow | None = None
    for run in plan.runs:
        if run.rung == plan.largest and prediction is None:
            made = make_prediction(log, plan, vocab_size=VOCAB, seed=0, at=NOW)
            assert isinstance(made, LadderPredictionRow)
            prediction = made
            rows.append(made)
        for seed in run.seeds:
            row = trainer.row(run, seed, prediction.sha256 if prediction else None)
            log.add(row)
            rows.append(row)
    return rows


@pytest.fixture(scope="module")
def strong(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a made-up campaign whose winner leads in long runs, on fresh runs and on a ladder."""
    directory = stressed_campaign(
        tmp_path_factory.mktemp("strong"), [WINNER, config(lr=1.5e-3), config(lr=8e-4)]
    )
    best = Finalist(
        config_hash=WINNER.config_hash, objective=2.2, runs=2, stderr=0.01,
        delta_vs_baseline=-0.3, delta_stderr=0.02, pairs=2,
    )  # fmt: skip
    more: list[Row] = [
        FinalistsRow(at=at(1000), steps=1000, finalists=(best,)),
        ConfirmedRow(at=at(1001), found=confirmation(-0.3)),
        *ladder_rows(World(lead=0.1, luck=0.001, shared_luck=0.001, fault=0.0005)),
    ]
    with (directory / "trajectory.jsonl").open("a", encoding="utf-8") as file:
        file.writelines(f"{dump_row(row)}\n" for row in more)
    return directory


@pytest.fixture(scope="module")
def barren(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a campaign whose best config is the baseline."""
    baseline = load_menu("cpu-tiny").baseline
    return stressed_campaign(tmp_path_factory.mktemp("barren"), [baseline, config(lr=8e-4)])


def handoff(home: Path, campaign: Path, *more: str) -> tuple[int, dict[str, Any]]:
    done = installed(
        "handoff", "--target", "llama-7b", "--campaign", campaign, "--json", *more, home=home
    )
    assert done.returncode in {0, 3, 4}, done.stderr
    return done.returncode, json.loads(done.stdout)


def test_three_nights_have_three_verdicts(strong: Path, barren: Path, tmp_path: Path) -> None:
    for number, (campaign, verdict, code) in enumerate(
        (
            (strong, "GO", 0),
            (NIGHT, "NOT YET", 3),
            (barren, "DO NOT LAUNCH", 4),
        )
    ):
        home = tmp_path / str(number)
        home.mkdir()
        found, plan = handoff(home, campaign)
        assert (found, plan["verdict"]) == (code, verdict)
        weights = [("GO", "NOT YET", "DO NOT LAUNCH").index(r["verdict"]) for r in plan["reasons"]]
        assert weights == sorted(weights, reverse=True)
        scripts = list((home / "handoff").glob("*.sh"))
        assert bool(scripts) == (verdict != "DO NOT LAUNCH")


def test_a_refused_launch_is_written_anyway_if_asked(barren: Path, tmp_path: Path) -> None:
    code, plan = handoff(tmp_path, barren, "--anyway")
    assert (code, plan["verdict"]) == (4, "DO NOT LAUNCH")
    assert (tmp_path / "handoff" / "launch_megatron.sh").exists()


def changed(case: LaunchCase, **standing: Any) -> LaunchCase:
    best, *others = case.candidates
    first = best.model_copy(update={"standing": best.standing.model_copy(update=standing)})
    return replace(case, candidates=(first, *others))


def chance(case: LaunchCase) -> LaunchCase:
    long = [3.0, 1.0, 2.0, 5.0, 4.0]
    pairs = tuple(Pair(1, float(n), score) for n, score in enumerate(long))
    found = fidelity([float(n) for n in range(5)], long)
    test = RankingTest(steps=1000, pairs=pairs, left_out=0, fidelity=found)
    return replace(case, ranking_test=test)


def test_each_open_question_holds_a_launch_back(strong: Path) -> None:
    case, found = read_case(strong), known(read_ladder(strong))

    def verdict(case: LaunchCase, ladder: LadderResult | None = found) -> str:
        return verdict_of(tuple(against(case, ladder)))

    assert verdict(case) == "GO"
    search = case.search.model_copy(update={"kept": 0})
    worse = (confirmation(0.2),)
    for heavier in (
        replace(case, search=search),
        replace(case, confirmations=worse),
        changed(case, delta_vs_baseline=0.01),
    ):
        assert verdict(heavier) == "DO NOT LAUNCH"
    for doubtful in (
        replace(case, confirmations=()),
        replace(case, confirmations=(confirmation(-0.01),)),
        changed(case, delta_vs_baseline=None, delta_stderr=None),
        changed(case, delta_vs_baseline=-0.1, delta_stderr=0.06),
        chance(case),
    ):
        assert verdict(doubtful) == "NOT YET"
    assert verdict(case, None) == "NOT YET"
    assert verdict(case, found.model_copy(update={"missing": 2})) == "NOT YET"
    assert verdict(case, found.model_copy(update={"lead": None})) == "NOT YET"


def test_a_ladder_that_missed_its_own_rung_is_known_to_forecast_and_verdict(strong: Path) -> None:
    case, found = read_case(strong), known(read_ladder(strong))
    assert known(found.predicted).missed is None
    first, *rest = known(found.predicted).outcomes
    off = first.model_copy(update={"seen_bpb": 1.1 * first.high})
    predicted = known(found.predicted).model_copy(update={"outcomes": (off, *rest)})
    missed = found.model_copy(update={"predicted": predicted})
    assert known(predicted.missed) < 0
    assert verdict_of(tuple(against(case, missed))) == "NOT YET"


@pytest.mark.parametrize(
    ("changes", "name", "taken"),
    [
        ({"weight_decay": 5.0}, "weight_decay", 0.3),
        ({"grad_clip": 0.1}, "grad_clip", 0.3),
        ({"grad_clip": 4.0}, "grad_clip", 1.0),
        ({"lr_warmup": 160}, "lr_warmup", 2000),
        ({"lr_warmup": 350}, "lr_warmup", 2000),
    ],
)
def test_carried_values_are_bounded_by_published_practice(
    changes: dict[str, Any], name: str, taken: float
) -> None:
    """160 and 350 of 1000 steps are warm-ups of 16 and 35 %."""
    made = project(config(**changes), load_target("llama-7b"), horizon_steps=1000)
    (bounded,) = (one for one in made.bounded if one.name == name)
    assert bounded.taken == getattr(made.config, name) == taken
    assert "arXiv" in bounded.source
    (shown,) = (one for one in made.carried if one.name == name)
    assert shown.target == taken
    assert made.warmup_fraction <= 0.02


def test_values_within_published_practice_stay(stressed: Path) -> None:
    usual = config(lr_warmup=10, grad_clip=1.0)
    made = project(usual, load_target("llama-1b"), horizon_steps=1000)
    assert {one.name for one in made.bounded} <= {"weight_decay"}
    assert made.config.grad_clip == 1.0
    assert plan_of(stressed).winner.schedule.warmup_steps > 0
