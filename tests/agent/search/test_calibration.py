import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from agent.menu.files import ProxyMenu, load_menu
from agent.search.calibration import Calibration
from agent.search.calibration_plan import CalibrationPlan
from agent.search.campaign import Campaign
from agent.search.campaign_start import new_settings
from agent.search.experiment import ExperimentWatcher
from agent.search.stopping import StopRequest
from agent.search.trials import TrialRunner
from autoresearch.errors import CampaignError
from tests.support.executors import InstantExecutor
from tests.support.rows import campaign_row
from tests.support.simulated.night import NoMeter
from tests.support.trials import trial_ok
from trainer.corpus import Corpus
from trainer.executors.base import Finished
from trainer.isolation.trial_files import TrialFiles
from trainer.memory.estimate import AnalyticMemory
from trainer.schema import (
    AnyConfig,
    Averaging,
    Config,
    CurvePoint,
    TrialFailed,
    TrialOk,
    TrialSpec,
    gpt,
)
from trajectory.calibrated import Calibrated
from trajectory.statistics.fidelity import spearman

pytestmark = pytest.mark.slow

Found = tuple[Calibrated, list[TrialSpec]]


class World(InstantExecutor):
    """Score long runs by the distance of the learning rate from its best value.

    Short runs also depend on the width, less so the longer they are; averaged weights halve that
    dependence.
    """

    def __init__(self, breaks: Sequence[int] = ()) -> None:
        self.breaks = breaks
        """Run lengths in steps at which a third of the configs time out."""
        self.specs: list[TrialSpec] = []

    def train(
        self, spec: TrialSpec, trial_dir: Path, tell: Callable[[CurvePoint], None]
    ) -> Finished:
        self.specs.append(spec)
        TrialFiles(spec, trial_dir).close()
        return Finished(self.result(spec), 2.0)

    def result(self, spec: TrialSpec) -> TrialOk | TrialFailed:
        if spec.config.lr > 0.02:
            return TrialFailed(status="nonfinite", message="the loss became nan", steps=3)
        steps = int(spec.budget.amount)
        if steps in self.breaks and int(spec.config.config_hash[:4], 16) % 3 == 0:
            return TrialFailed(status="timeout", message="it took too long", steps=3)
        looks = tuple(
            self.score(spec, look.step or steps, look.average is not None)
            for look in spec.checkpoints
        )
        return trial_ok(
            spec,
            val_bpb=self.score(spec, steps, spec.average is not None),
            checkpoints_bpb=looks,
        )

    def score(self, spec: TrialSpec, steps: int, averaged: bool) -> float:
        config = spec.config
        truth = 3 + 0.2 * math.log10(config.lr / 2e-3) ** 2
        misled = 0.002 * config.d_model * 60 / steps * (0.5 if averaged else 1)
        noise = Random(f"{config.config_hash}:{spec.seed}").gauss(0, 0.01)
        return truth + misled + noise


@contextmanager
def campaign(directory: Path, menu: str = "cpu-tiny", **chosen: Any) -> Iterator[Campaign]:
    directory.mkdir(exist_ok=True)
    tokens = np.memmap(directory / "tokens", dtype="uint16", mode="w+", shape=(1,))
    corpus = Corpus(campaign_row().corpus, tokens, tokens, directory)
    settings = new_settings(load_menu(menu), menu, chosen)
    with Campaign(directory / "c", settings, load_menu(menu), corpus, sandbox="none") as opened:
        yield opened


def calibrated(
    directory: Path,
    world: World,
    configs: int = 24,
    memory: AnalyticMemory | None = None,
    **chosen: Any,
) -> Calibrated:
    with campaign(directory, **chosen) as opened:
        plan = CalibrationPlan(
            opened, None, configs=configs, long_steps=1000, long_seeds=1, memory=memory
        )
        runner = TrialRunner(
            opened.directory / "trials",
            opened.trial_spec,
            world,
            opened.results.trial_ids,
            StopRequest(),
            ExperimentWatcher(),
        )
        return Calibration(
            campaign=opened, plan=plan, runner=runner, watcher=ExperimentWatcher(), meter=NoMeter()
        ).run()


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Found:
    world = World()
    return calibrated(tmp_path_factory.mktemp("world"), world, 40), world.specs


def test_what_ranks_better_in_this_world_is_found(found: Found) -> None:
    calibration, _ = found
    ways = {way.name: way for way in calibration.proxy_metrics}
    assert calibration.own.name == "60 steps of 1000"
    assert calibration.advised is not None
    assert calibration.advised.name.startswith("weights ")
    assert ways["horizon 300"].spearman == calibration.own.spearman, "no horizon matters here"


def test_correlations_are_of_short_and_long_runs_on_other_seeds(found: Found) -> None:
    calibration, specs = found
    long = {s.config.config_hash: s for s in specs if s.budget.amount == 1000}
    short = {s.config.config_hash: s for s in specs if s.checkpoints and s.budget.amount == 60}
    assert len(long) == len(short) == calibration.n == 40
    assert {s.seed for s in long.values()} == {710}
    assert {s.seed for s in short.values()} == {700}
    assert all(s.horizon_steps is None for s in long.values())
    scores = {
        name: [getattr(World().result(one), "val_bpb", math.inf) for one in of.values()]
        for name, of in (("short", short), ("long", long))
    }
    assert list(short) == list(long)
    assert calibration.own.spearman.value == pytest.approx(
        spearman(scores["short"], scores["long"])
    )
    assert calibration.nonfinite == sum(map(math.isinf, scores["long"]))


def test_half_of_the_configs_are_near_the_best_so_far(found: Found) -> None:
    menu = load_menu("cpu-tiny")
    configs = list(dict.fromkeys(s.config for s in found[1]))
    assert configs[0] == menu.baseline
    for place, config in enumerate(configs[1:], start=1):
        values = menu.knob_values(config)
        turned = min(
            sum(values[name] != other[name] for name in values)
            for other in map(menu.knob_values, configs[:place])
        )
        assert (turned <= 3) == (place % 2 == 0)


def test_more_configs_add_to_those_there(tmp_path: Path) -> None:
    first, second = World(), World()
    calibrated(tmp_path, first, configs=10)
    assert calibrated(tmp_path, second, configs=14).n == 14
    assert len(first.specs) / 10 == len(second.specs) / 4


def test_averaging_and_cooldown_are_compared_with_their_absence(tmp_path: Path) -> None:
    own = {"average": Averaging(form="ema", steps=20), "cooldown_steps": 10}
    calibration = calibrated(tmp_path, World(), **own)
    assert calibration.own.name == "60 steps of 1000, cooldown 10, ema:20"
    names = {way.name for way in calibration.proxy_metrics}
    assert {"weights as they are", "no cooldown"} <= names
    assert "weights ema:20" not in names


def test_other_horizons_and_cooldowns_change_one_thing(tmp_path: Path) -> None:
    own = {"average": Averaging(form="ema", steps=20), "cooldown_steps": 10}
    with campaign(tmp_path, **own) as opened:
        plan = CalibrationPlan(opened, None, configs=8, long_steps=1000, long_seeds=1)
        first, *others = plan.runs(opened.menu.baseline)
    tried = others[:-1]
    assert len(tried) == len({(one.run, one.seed) for one in tried}) == 5
    assert "cooldown over the last 10" not in {one.metric for one in tried}
    for one in tried:
        assert one.run.average == first.run.average
        fields = ("horizon_steps", "cooldown_steps")
        assert sum(getattr(one.run, name) != getattr(first.run, name) for name in fields) == 1


def test_every_config_is_measured_in_the_ways_of_the_baseline(tmp_path: Path) -> None:
    budget = f"{60 * gpt(load_menu('cpu-tiny').baseline).tokens_per_step} tokens"
    with campaign(tmp_path, budget=budget, horizon_steps=120) as opened:
        plan = CalibrationPlan(opened, None, configs=8, long_steps=1000, long_seeds=1)
        base = gpt(opened.menu.baseline)
        half = base.model_copy(update={"batch_size": base.batch_size // 2})
        assert plan.budget_steps(half) == 120
        ways = [[one.metric for one in plan.runs(config)] for config in (base, half)]
    assert ways[0] == ways[1]
    assert "horizon 60" in ways[0]


def test_what_says_nothing_is_refused(tmp_path: Path) -> None:
    for budget in ("3 seconds", "300 steps", "11 steps"):
        with pytest.raises(CampaignError):
            calibrated(tmp_path / budget, World(), budget=budget)


def coarse(menu: ProxyMenu) -> AnyConfig:
    """Return a config with eight times the baseline's tokens per step."""
    batch = {"batch_size": 8 * gpt(menu.baseline).batch_size}
    return gpt(menu.baseline).model_copy(update=batch)


def test_a_config_shorter_than_the_cooldown_cools_down_all_along(tmp_path: Path) -> None:
    budget = f"{24 * gpt(load_menu('cpu-tiny').baseline).tokens_per_step} tokens"
    with campaign(tmp_path, budget=budget, cooldown_steps=20) as opened:
        assert opened.trial_spec(opened.menu.baseline, 1).cooldown_steps == 20
        spec = opened.trial_spec(coarse(opened.menu), 1)
        assert (spec.steps, spec.cooldown_steps) == (3, 3)


def test_configs_of_too_few_steps_to_take_parts_of_are_passed_over(tmp_path: Path) -> None:
    world, menu = World(), load_menu("cpu-tiny")
    wide = tmp_path / "wide.toml"
    wide.write_text(menu.toml.replace("batch_size * seq_len <= 1024", "n_layer <= 64"))
    chosen = {"menu": str(wide), "budget": f"{16 * gpt(menu.baseline).tokens_per_step} tokens"}
    assert calibrated(tmp_path, world, configs=16, **chosen).n == 16
    own = [spec for spec in world.specs if len(spec.checkpoints) > 3]
    assert len(own) == 16
    assert len({spec.steps for spec in own}) > 1
    assert min(spec.steps or 0 for spec in own) >= 12


def test_a_config_whose_run_failed_is_trained_no_further(tmp_path: Path) -> None:
    world = World(breaks=[60])
    found = calibrated(tmp_path, world, configs=16)
    assert found.left_out and found.n + found.left_out == 16
    runs = Counter(spec.config.config_hash for spec in world.specs)
    broken = {s.config.config_hash: s for s in world.specs if failed(world.result(s))}
    assert len(broken) == found.left_out
    for config, spec in broken.items():
        *_, last = [one for one in world.specs if one.config.config_hash == config]
        assert last == spec
        assert runs[config] == 1


def failed(result: TrialOk | TrialFailed) -> bool:
    return isinstance(result, TrialFailed) and result.status != "nonfinite"


class Narrow:
    """A memory model in which only narrow models fit."""

    limit_gib = 1.0

    def predict_gib(self, config: Config) -> float:
        return config.d_model / 128


def test_configs_that_the_device_has_no_memory_for_are_passed_over(tmp_path: Path) -> None:
    world = World()
    assert calibrated(tmp_path, world, configs=8, memory=Narrow()).n == 8
    assert max(spec.gpt.d_model for spec in world.specs) <= 128
