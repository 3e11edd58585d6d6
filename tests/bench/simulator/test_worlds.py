"""Worlds made of runs whose truth is known find it again."""

from __future__ import annotations

import json
import math
from pathlib import Path
from random import Random

import numpy as np
import pytest

from agent.menu.files import load_menu
from autoresearch.errors import CampaignError, SettingsError
from bench.simulator.climb import allowed, climb
from bench.simulator.cpu_tiny import cpu_tiny
from bench.simulator.encoding import Encoder
from bench.simulator.five_minutes import CARRIED, FILE, five_minutes
from bench.simulator.made_up import MadeUpWorld
from bench.simulator.noise import MOST_DOF, ByLevel, NoiseModel, Shape, Sizes
from bench.simulator.real import RealWorld
from bench.simulator.replicates import noise_of
from bench.simulator.runs import KnownRun, RunTable
from bench.simulator.step_law import FILE as STEP_LAW
from bench.simulator.step_law import step_law
from bench.simulator.surrogate import Family
from bench.simulator.unseen import NIGHTS, of_a_night
from bench.simulator.worlds import Sources, worlds
from bench.table.store import TableStore, TableTrial
from tests.support.trials import trial_spec
from trainer.spec import Config, TrialFailed, TrialOk

MENU = load_menu("cpu-tiny")


def configs(count: int, seed: int = 0) -> list[Config]:
    """Spread over the menu."""
    rng, found = Random(seed), []
    while len(found) < count:
        edit = {name: domain.rounded(domain.draw(rng)) for name, domain in MENU.domains.items()}
        config = allowed(MENU, MENU.baseline, edit)
        if config is not None:
            found.append(config)
    return found


def truth(config: Config) -> float:
    """Smooth, of a few knobs, as training is."""
    return (
        3.0
        + 0.3 * math.log10(config.lr / 5e-3) ** 2
        + 0.1 * (config.n_layer - 2) / 4
        + 0.2 * (config.positions == "learned")
        + 0.1 * (config.beta2 - 0.8)
    )


def table_of(
    noise: NoiseModel | None, count: int = 300, *, fails: bool = False, fours: int = 0
) -> RunTable:
    """Two runs of every config, four of the first ``fours``; with ``fails`` the deepest cannot be
    trained."""
    encoder, runs = Encoder(MENU), []
    for number, config in enumerate(configs(count)):
        row = encoder.matrix([config])[0]
        for seed in range(4 if number < fours else 2):
            off = 0.0
            if noise is not None:
                off = noise.of(row, config.config_hash, seed, truth(config))
            score = None if fails and config.n_layer == 6 else truth(config) + off
            runs.append(KnownRun(config, seed, score, 2.0, (7.0, *(truth(config),) * 59)))
    return RunTable("planted", MENU, runs, shares_seeds=True)


def planted(sizes: Sizes, dof: float = MOST_DOF, shared: float = 0.0) -> NoiseModel:
    return NoiseModel(sizes, Shape(dof), shared, 1.0, np.ones(20), 0)


EVEN = ByLevel((0.0,), (0.02,))
PLANTED = planted(ByLevel((3.1, 3.9), (0.01, 0.05)), 4.0, 0.8)


def noise_found(table: RunTable) -> NoiseModel:
    """By who knows the truth."""
    encoder = Encoder(MENU)
    rows = {key: encoder.matrix([config])[0] for key, config in table.configs.items()}
    truths = {key: truth(config) for key, config in table.configs.items()}
    return noise_of(table, rows, truths, np.zeros(1))


def sizes_told(noise: NoiseModel, some: list[Config]) -> list[float]:
    encoder = Encoder(MENU)
    return [
        noise.sizes.of(encoder.matrix([config])[0], config.config_hash, truth(config))
        for config in some
    ]


class OnlyNamed(MadeUpWorld):
    """Of a menu that nobody has searched."""

    def __init__(self) -> None:
        super().__init__()
        self.menu = self.menu.model_copy(update={"name": "nobody's"})


@pytest.fixture(scope="module")
def forest() -> RealWorld:
    return RealWorld(table_of(PLANTED, 200, fails=True), "forest")


@pytest.mark.slow
@pytest.mark.parametrize("family", ["forest", "gp", "mlp"])
def test_a_surrogate_ranks_what_it_was_not_shown(family: Family) -> None:
    world = RealWorld(table_of(None), family)
    assert world.validation.rank > 0.85
    unseen = configs(50, seed=1)
    told = np.array([world.truth(config) for config in unseen])
    real = np.array([truth(config) for config in unseen])
    assert np.corrcoef(told, real)[0, 1] > 0.85


def test_a_forest_ranks_what_it_was_not_shown(forest: RealWorld) -> None:
    """Under the noise that was planted."""
    assert forest.validation.rank > 0.7
    unseen = configs(50, seed=1)
    told = [forest.truth(config) for config in unseen]
    both = [(a, truth(config)) for a, config in zip(told, unseen, strict=True) if a is not None]
    assert np.corrcoef(np.array(both).T)[0, 1] > 0.75


def test_what_cannot_be_trained_fails_there(forest: RealWorld) -> None:
    unseen = configs(60, seed=1)
    right = [(forest.truth(config) is None) == (config.n_layer == 6) for config in unseen]
    assert sum(right) > 50
    failing = next(config for config in unseen if forest.truth(config) is None)
    result, points = forest.outcome(trial_spec(config=failing))
    assert isinstance(result, TrialFailed)
    assert points == ()


def test_planted_noise_is_found_again() -> None:
    found = noise_found(table_of(PLANTED, 600, fours=100))
    assert found.configs == 600
    unseen = configs(60, seed=1)
    ratios = np.array(sizes_told(found, unseen)) / np.array(sizes_told(PLANTED, unseen))
    assert np.median(ratios) == pytest.approx(1, rel=0.2)
    assert 2.1 < found.shape.dof < 12


def test_tame_noise_has_no_tails_and_no_miracles() -> None:
    found = noise_found(table_of(planted(EVEN), 400, fours=100))
    assert found.shape.dof > 8
    assert np.median(sizes_told(found, configs(60, seed=1))) == pytest.approx(0.02, rel=0.15)


class _Wild:
    """Half of the configs ten times as noisy as the others, and no knob says which."""

    def of(self, row: np.ndarray, config_hash: str, truth: float) -> float:
        return 0.05 if int(config_hash, 16) % 2 else 0.005


def test_wild_configs_are_wild_seed_after_seed_and_are_no_tails() -> None:
    """What heavy tails would make of them is a ruined run of a tame config now and then."""
    table = table_of(planted(_Wild()), 400, fours=150)
    found = noise_found(table)
    assert found.shape.dof > 5
    assert found.sizes.unexplained > 0.7  # type: ignore[attr-defined]
    four = list(table.configs.values())[:150]
    logs = np.log(sizes_told(found, four))
    wild = np.array([int(config.config_hash, 16) % 2 == 1 for config in four])
    assert logs[wild].mean() - logs[~wild].mean() > 1.2, "of 2.3, as far as four runs tell"


def test_a_ruined_run_is_far_off_and_a_lucky_one_is_not() -> None:
    shape = Shape(2.5, worst=20.0)
    drawn = [shape.at(float(luck)) for luck in np.random.default_rng(0).standard_normal(20_000)]
    assert np.mean(drawn) == pytest.approx(0, abs=0.05)
    assert min(drawn) > -6
    assert 10 < max(drawn) <= 20


def test_what_seeds_share_is_found_again_and_what_they_do_not() -> None:
    """Edits of a few knobs are lucky with what they edit; distant configs are not."""
    encoder, rng = Encoder(MENU), Random(2)
    family: list[Config] = []
    for parent in configs(40):
        family.append(parent)
        for _ in range(4):
            name = rng.choice(["lr", "beta1", "grad_clip", "weight_decay"])
            domain = MENU.domains[name]
            child = allowed(MENU, parent, {name: domain.rounded(domain.draw(rng))})
            family += [child] if child else []
    for shared in (0.0, 0.9):
        noise = planted(EVEN, shared=shared)
        runs = []
        for config in dict.fromkeys(family):
            row = encoder.matrix([config])[0]
            for seed in (0, 1):
                off = noise.of(row, config.config_hash, seed, 3.0)
                runs.append(KnownRun(config, seed, 3.0 + off, 1.0))
        table = RunTable("planted", MENU, runs, shares_seeds=True)
        rows = {key: encoder.matrix([one])[0] for key, one in table.configs.items()}
        found = noise_of(table, rows, dict.fromkeys(rows, 3.0), np.zeros(1))
        assert found.shared == pytest.approx(shared, abs=0.3)


def test_noise_is_as_large_as_it_says_and_the_same_again() -> None:
    noise = planted(EVEN, shared=0.5)
    row = np.full(20, 0.3)
    drawn = [noise.of(row, "a", seed, 3.0) for seed in range(400)]
    assert np.std(drawn) == pytest.approx(0.02, rel=0.15)
    assert drawn[:3] == [noise.of(row, "a", seed, 3.0) for seed in range(3)]
    near, far = row + 0.001, 1 - row
    kin = [[noise.of(other, "b", seed, 3.0) for seed in range(400)] for other in (near, far)]
    with_kin, with_stranger = (np.corrcoef(drawn, one)[0, 1] for one in kin)
    assert with_kin == pytest.approx(0.5, abs=0.12)
    assert abs(with_stranger) < 0.25


def test_a_config_of_many_seeds_is_held_against_others_on_the_seeds_they_have() -> None:
    """The seeds that only the baseline has are unkind to all."""
    runs = [KnownRun(one, seed, 3.0, 1.0) for one in configs(40) for seed in (0, 1)]
    runs += [KnownRun(MENU.baseline, seed, 3.0 + 0.1 * (seed > 1), 1.0) for seed in range(24)]
    shared = RunTable("planted", MENU, runs, shares_seeds=True)
    assert shared.means[MENU.baseline.config_hash] == 3.0
    apart = RunTable("planted", MENU, runs, shares_seeds=False)
    assert apart.means[MENU.baseline.config_hash] == pytest.approx(3.0 + 0.1 * 22 / 24)


def test_what_matters_to_the_score_is_what_separates_the_luck_of_two_configs() -> None:
    """A knob that does nothing leaves a config its parent's luck."""
    found = noise_found(table_of(planted(EVEN), 300))
    assert found.weights.mean() == pytest.approx(1)
    assert max(found.weights) > 4 * np.median(found.weights)
    encoder, worse = Encoder(MENU), MENU.apply(MENU.baseline, {"lr": 3e-2})
    idle = MENU.apply(MENU.baseline, {"weight_decay": 0.5})
    near, far, here = (encoder.matrix([one])[0] for one in (idle, worse, MENU.baseline))
    there = [float(np.linalg.norm(found.weights * (one - here))) for one in (near, far)]
    assert there[1] > 5 * there[0]


def test_nothing_replicated_leaves_what_the_surface_does_not_explain() -> None:
    runs = [KnownRun(config, 0, truth(config), 1.0) for config in configs(60)]
    table = RunTable("single", MENU, runs, shares_seeds=False)
    rows = {key: np.zeros(20) for key in table.configs}
    found = noise_of(table, rows, dict.fromkeys(rows, 3.0), np.array([0.01, -0.01, 0.02]))
    assert found.sizes == ByLevel((0.0,), (pytest.approx(0.01 / 0.6745),))
    assert found.shared == 0


def test_a_run_has_a_curve_and_seconds_like_those_of_the_table(forest: RealWorld) -> None:
    result, points = forest.outcome(trial_spec(config=MENU.baseline))
    assert isinstance(result, TrialOk)
    assert len(points) == 60
    assert points[0].loss > points[-1].loss
    assert result.train_s == pytest.approx(2.0, rel=0.01)
    assert forest.outcome(trial_spec(config=MENU.baseline)) == (result, points)


@pytest.mark.slow
def test_the_best_that_is_climbed_to_is_the_best_there_is() -> None:
    """Of an objective whose optimum lies where a constraint needs two knobs to move at once."""
    world = MadeUpWorld()
    best, config = climb(MENU, lambda some: [world.truth(one) for one in some], ())
    assert best == pytest.approx(world.best, abs=2e-3)
    assert (config.d_model, config.n_layer, config.tokens_per_step) == (256, 4, 1024)


def test_the_published_recipe_is_read_with_its_failures(tmp_path: Path) -> None:
    knobs = dict.fromkeys(CARRIED, 0.1) | {
        "DEPTH": 8, "ASPECT_RATIO": 64, "HEAD_DIM": 128, "DEVICE_BATCH_SIZE": 128,
        "TOTAL_BATCH_SIZE": 524288, "WINDOW_PATTERN": "LSSL",
    }  # fmt: skip
    told = [
        {"val_bpb": 0.99, "success": True, "wt": 300.1, **knobs},
        {"val_bpb": 100.0, "success": False, "wt": 30.0, **knobs, "DEPTH": 24},
        {"val_bpb": 100.0, "success": False, "wt": 300.0, **knobs},
        {"val_bpb": 0.97, "success": True, "wt": 300.1},
    ]
    (tmp_path / FILE).parent.mkdir(parents=True)
    (tmp_path / FILE).write_text(json.dumps({"somebody": {"0": told}}))
    good, failed = five_minutes(tmp_path).runs
    assert (good.score, good.config.n_layer, good.config.lr_warmup) == (0.99, 8, 4)
    assert (failed.score, failed.config.n_layer, failed.train_s) == (None, 24, 30.0)


def test_step_law_is_a_table_a_size_and_length(tmp_path: Path) -> None:
    rows = ["h,ffnh,numh,numl,lr,bs,ti,loss,smooth loss,exp_name,D,N,D/N"]
    rows += [
        f"960,9368,15,7,{rate},{batch},1,2.4,{2.3 + rate},x,{tokens},1,1"
        for tokens in ("4000000000", "11400000000")
        for rate in (0.001, 0.004)
        for batch in (32, 512)
    ]
    (tmp_path / STEP_LAW).parent.mkdir()
    (tmp_path / STEP_LAW).write_text("\n".join(rows))
    tables = step_law(tmp_path)
    assert [len(table.runs) for table in tables] == [4, 4]
    assert tables[0].menu.baseline.lr == 0.001
    assert tables[0].means[tables[0].menu.baseline.config_hash] == pytest.approx(2.301)


def test_the_table_of_trials_is_read_while_it_grows(tmp_path: Path) -> None:
    journal, published = tmp_path / "trials.jsonl", tmp_path / "none.parquet"
    store = TableStore(journal, published)
    for config in configs(45):
        for seed in (0, 1):
            store.add(
                TableTrial(
                    role="space",
                    knobs=json.dumps(MENU.knob_values(config)),
                    config_hash=config.config_hash,
                    seed=seed,
                    steps=60,
                    status="ok",
                    val_bpb=truth(config),
                    params=1,
                    train_s=2.0,
                    loss=(3.0,) * 60,
                    cpu="",
                    torch="",
                )
            )
    table = cpu_tiny(journal, published)
    assert set(table.configs) == {config.config_hash for config in configs(45)}
    assert all(run.losses for run in table.runs)


def test_a_world_is_held_against_a_real_night_that_it_was_not_made_of(forest: RealWorld) -> None:
    """A made-up truth and the real one have the rate, the depth and the positions in common, and
    little else; another menu's world is held against nothing."""
    for night in NIGHTS.values():
        found = of_a_night(forest, night)
        assert found is not None
        assert found.configs >= 93
        assert 0.2 < found.correlation < 0.9
        assert found.rmse > abs(found.bias)
        assert of_a_night(OnlyNamed(), night) is None


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="no world 'moon'; choose one of made-up"):
        worlds("moon")
    with pytest.raises(SettingsError, match=r"no checkout .* has data/dense_lr_bs_loss\.csv"):
        worlds("step-law", Sources(checkouts=(tmp_path,)))
    with pytest.raises(CampaignError, match="0 configs, too few to make a world of"):
        cpu_tiny(tmp_path / "none.jsonl", tmp_path / "none.parquet")
