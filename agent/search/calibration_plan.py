"""Plan the configs that a calibration trains, and the runs of each.

The baseline comes first. After it, configs drawn from the whole menu alternate with configs near
the best so far, as a search would try them. Each config follows from the earlier configs and their
scores alone, so a resumed calibration trains the same ones.

Short runs use one seed, long runs others. A short and a long run of one seed would share weights
and batches. They would then agree better than a search's short runs agree with long ones.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random

from agent.menu.files import ProxyMenu
from agent.search.campaign import Campaign
from agent.settings.campaign import CampaignSettings, seeds_of
from autoresearch.errors import CampaignError, SpecError
from trainer.memory.estimate import AnalyticMemory
from trainer.schema import AnyConfig, Averaging, Budget, Checkpoint, TrialSpec, gpt
from trajectory.calibrated import CalibrationRun

FIRST_LONG_SEED, MOST_LONG_SEEDS = 10, 90
"""Offset of the first long-run seed within the calibration's seeds, and the largest number of them.
"""
HORIZONS = (0.3, 1.0, 3.0)
"""Schedule horizons to try, as fractions of the long run's steps, besides the budget's own steps.
"""
PARTS = (6, 3)
"""Divisors of the budget that give the averaging windows and cooldowns to try: a sixth and a third.
"""
FEWEST_STEPS = 2 * max(PARTS)
"""Fewest steps of a short run whose parts are distinct whole numbers of steps."""
ELITES = 0.25
MAX_CHANGES = 3
MAX_DRAWS = 5000

LONG = "long"


@dataclass(frozen=True, slots=True)
class Planned:
    """One run of a config."""

    metric: str
    """Name of the proxy metric that the run measures, or :data:`LONG`. It counts the baseline's
    steps, so it is the same for all configs."""
    seed: int
    run: CalibrationRun


def check_calibratable(settings: CampaignSettings, menu: ProxyMenu, long_steps: int) -> None:
    """Check that short runs of these settings can be compared with long runs of this many steps.

    :raises CampaignError: if they cannot.
    """
    if menu.trainer is not None:
        raise CampaignError(
            f"calibrate --fidelity is for menus of the built-in trainer, and {menu.name} names a "
            "command, whose schedule and weights are unknown; leave --fidelity out"
        )
    steps = _steps_of(settings.budget, menu.baseline)
    if long_steps < 4 * steps:
        raise CampaignError(
            f"long runs of {long_steps} steps say little of short ones of {settings.budget}; ask "
            f"for --steps {4 * steps} or more"
        )
    if steps < FEWEST_STEPS:
        raise CampaignError(
            f"{settings.budget} are {steps} steps of the baseline, too few to take parts of; it "
            f"takes {FEWEST_STEPS}"
        )


def _steps_of(budget: Budget, config: AnyConfig) -> int:
    """
    :raises CampaignError: if the budget is in seconds, so that the number of steps is unknown.
    """
    steps = budget.steps(gpt(config).tokens_per_step)
    if steps is None:
        raise CampaignError(
            f"short runs of {budget} have no known last step, so parts of them cannot be scored; "
            "calibrate a campaign whose budget is in steps or tokens"
        )
    return steps


def _averages(steps: int) -> Iterator[Averaging]:
    for part in PARTS:
        yield Averaging(form="ema", steps=round(steps / part))
        yield Averaging(form="lawa", steps=round(steps / part))


@dataclass(frozen=True)
class CalibrationPlan:
    """A calibration of a campaign's own short run."""

    campaign: Campaign
    train_tokens: int | None
    """Tokens that the runs train on: all but the holdout split, if there is one."""
    configs: int
    long_steps: int
    """Steps of the baseline's long run. Another config's long run is the same multiple of its
    budget."""
    long_seeds: int
    memory: AnalyticMemory | None = None
    """Memory of the campaign's own short run, including the averaged weights (:attr:`means`)."""

    def __post_init__(self) -> None:
        """
        :raises CampaignError: if nothing can be calibrated.
        """
        check_calibratable(self.campaign.settings, self.campaign.menu, self.long_steps)

    # --- configs ------------------------------------------------------------------------------

    def following(self, known: Sequence[tuple[AnyConfig, float]]) -> AnyConfig:
        """Return the next config: new, allowed, and long enough to take parts of.

        :param known: earlier configs in order, each with its score by the campaign's own proxy
            metric.
        :raises CampaignError: if the menu has no further config.
        """
        menu, number = self.campaign.menu, len(known)
        if not number:
            return menu.baseline
        rng = Random(f"calibration:{self.campaign.settings.seed}:{number}")
        best = sorted(known, key=lambda pair: pair[1])[: max(1, int(ELITES * number))]
        seen = {config.config_hash for config, _ in known}
        for _ in range(MAX_DRAWS):
            origin, names = menu.baseline, list(menu.knobs)
            if number % 2 == 0:
                origin = rng.choice(best)[0]
                names = rng.sample(names, rng.randint(1, min(MAX_CHANGES, len(names))))
            domains = {name: menu.domains[name] for name in names}
            values = {name: domain.rounded(domain.draw(rng)) for name, domain in domains.items()}
            try:
                config = menu.apply(origin, values)
            except SpecError:
                continue
            if config.config_hash in seen or self.budget_steps(config) < FEWEST_STEPS:
                continue
            if menu.broken_constraint(config, self.campaign.settings.budget) is not None:
                continue
            if self.memory is None or self.memory.predict_gib(gpt(config)) <= self.memory.limit_gib:
                return config
        raise CampaignError(
            f"none of {MAX_DRAWS} draws was a config both allowed and new after {number}: the menu "
            f"seems exhausted; ask for --configs {number}, or widen its knobs"
        )

    # --- runs ---------------------------------------------------------------------------------

    def runs(self, config: AnyConfig) -> Iterator[Planned]:
        """Yield all runs of a config, the campaign's own proxy metric first."""
        settings = self.campaign.settings
        first, *_ = seeds_of(settings.seed, "calibration")
        own = CalibrationRun(
            steps=self.budget_steps(config),
            horizon_steps=self.horizon(config),
            cooldown_steps=self.campaign.schedule(config).cooldown_steps,
            average=settings.average,
        )
        more = {"checkpoints": tuple(self.averages(config).values())}
        yield Planned(self.own_metric, first, own.model_copy(update=more))
        for metric, steps in self.horizons(config).items():
            yield Planned(metric, first, own.model_copy(update={"horizon_steps": steps}))
        for metric, steps in self.cooldowns(config).items():
            yield Planned(metric, first, own.model_copy(update={"cooldown_steps": steps}))
        long = CalibrationRun(steps=self.long_of(config), horizon_steps=None)
        for seed in range(self.long_seeds):
            yield Planned(LONG, first + FIRST_LONG_SEED + seed, long)

    @property
    def own_metric(self) -> str:
        """Name of the campaign's own proxy metric."""
        base, settings = self.campaign.menu.baseline, self.campaign.settings
        name = f"{self.budget_steps(base)} steps of {self.horizon(base)}"
        name += f", cooldown {settings.cooldown_steps}" if settings.cooldown_steps else ""
        return name + (f", {settings.average}" if settings.average else "")

    def averages(self, config: AnyConfig) -> dict[str, Checkpoint]:
        """Return the other weight averages to score at a short run's end, by name, like
        :meth:`horizons`."""
        base, own = self.budget_steps(self.campaign.menu.baseline), self.campaign.settings.average
        found = {} if own is None else {"weights as they are": Checkpoint()}
        for of, mine in zip(_averages(base), _averages(self.budget_steps(config)), strict=True):
            if of != own:
                found[f"weights {of}"] = Checkpoint(average=mine)
        return found

    @staticmethod
    def means(settings: CampaignSettings) -> int:
        """Return how many averages of the weights an own run keeps at most, the campaign's own
        included."""
        return 2 * len(PARTS) + (settings.average is not None)

    def horizons(self, config: AnyConfig) -> dict[str, int]:
        """Return the other horizons to try, in steps of this config, by name. Names count the
        baseline's steps, which also decide the horizons that exist."""
        base = self.campaign.menu.baseline
        own, steps = self.horizon(base), self.budget_steps(base)
        tried = {steps: self.budget_steps(config)} | {
            round(self.long_steps * share): round(self.long_of(config) * share)
            for share in HORIZONS
        }
        return {f"horizon {of}": mine for of, mine in tried.items() if of != own}

    def cooldowns(self, config: AnyConfig) -> dict[str, int]:
        """Return the other cooldowns to try, in steps of this config, by name, like
        :meth:`horizons`."""
        steps = self.budget_steps(self.campaign.menu.baseline)
        tried = {round(steps / part): round(self.budget_steps(config) / part) for part in PARTS}
        own = self.campaign.settings.cooldown_steps
        found = {f"cooldown over the last {of}": mine for of, mine in tried.items() if of != own}
        return found | ({"no cooldown": 0} if own else {})

    def budget_steps(self, config: AnyConfig) -> int:
        """Return the steps of a short run of this config."""
        return _steps_of(self.campaign.settings.budget, config)

    def horizon(self, config: AnyConfig) -> int:
        """Return the horizon of the campaign's own short run, in steps."""
        return self.campaign.settings.horizon_steps or self.budget_steps(config)

    def long_of(self, config: AnyConfig) -> int:
        """Return the steps of this config's long run, which is the same multiple of its budget as
        the baseline's."""
        baseline = self.campaign.menu.baseline
        return round(self.long_steps * self.budget_steps(config) / self.budget_steps(baseline))

    def spec(self, config: AnyConfig, planned: Planned) -> TrialSpec:
        """Return the spec of a run, its trial_id empty.

        The time limit is the short runs' limit, multiplied by how much more this run trains and
        scores.
        """
        short, run = self.campaign.trial_spec(config, planned.seed), planned.run
        more = max(1.0, run.steps / self.budget_steps(config)) + len(run.checkpoints)
        return short.model_copy(
            update={
                "budget": Budget(unit="steps", amount=run.steps),
                "horizon_steps": run.horizon_steps,
                "cooldown_steps": run.cooldown_steps,
                "average": run.average,
                "checkpoints": run.checkpoints,
                "train_tokens": self.train_tokens,
                "limits": short.limits.model_copy(update={"wall_s": short.limits.wall_s * more}),
            }
        )
