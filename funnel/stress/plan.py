"""Which configs get long runs, on which seeds, for how long.

The seeds are ones that the campaign decides nothing by: a winner measured on the seeds that chose
it is flattered by them. They are the same for every config and every stress test of a campaign, so
that differences are paired and what was run is found again.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence, Set
from dataclasses import dataclass

from agent.menu.trainer_table import TrainerTable
from agent.search.campaign import Campaign
from agent.search.seed_blocks import seeds_of
from autoresearch.errors import CampaignError
from trainer.spec import AnyConfig, Budget, CommandOk, Measured, TrialFailed, TrialSpec, gpt
from trajectory.ranking import Ranked
from trajectory.rows import StressPurpose


@dataclass(frozen=True, slots=True)
class Entrant:
    """A config that gets long runs."""

    config: AnyConfig
    config_hash: str
    rank: int
    """In the ranking of short runs, 1 the best."""
    purpose: StressPurpose
    in_spread: bool


@dataclass(frozen=True, slots=True)
class StressPlan:
    """A stress test: its runs and their order."""

    steps: int
    seeds: tuple[int, ...]
    entrants: tuple[Entrant, ...]
    """Candidates, the baseline, the rest of the spread; each by rank."""
    carried: int
    """How many candidates get more than the first seed, and how many finalists there may be."""

    @classmethod
    def of(
        cls,
        ranked: Sequence[Ranked],
        *,
        top: int,
        spread: int,
        baseline_hash: str | None,
        steps: int,
        seeds: Sequence[int],
        first: int | None = None,
    ) -> StressPlan:
        """
        :param ranked: every measured config, the best first.
        :param first: how many of the best get the first seed, where more than ``top``.
        :param spread: how many configs span the ranking; 0 for none.
        :param baseline_hash: the config to compare with; None to leave it out.
        :raises CampaignError: where nothing was measured.
        """
        if not ranked:
            raise CampaignError(
                "nothing was measured in this campaign yet, so there is nothing to stress; "
                "run autoresearch loop first"
            )
        spread_ranks = set(_spread_ranks(len(ranked), spread))
        entrants: list[Entrant] = []
        for rank, entry in enumerate(ranked, start=1):
            purpose: StressPurpose
            if rank <= max(top, first or 0):
                purpose = "candidate"
            elif entry.config_hash == baseline_hash:
                purpose = "baseline"
            elif rank in spread_ranks:
                purpose = "spread"
            else:
                continue
            entrants.append(
                Entrant(entry.config, entry.config_hash, rank, purpose, rank in spread_ranks)
            )
        order: list[StressPurpose] = ["candidate", "baseline", "spread"]
        entrants.sort(key=lambda entrant: (order.index(entrant.purpose), entrant.rank))
        candidates = sum(entrant.purpose == "candidate" for entrant in entrants)
        return cls(steps, tuple(seeds), tuple(entrants), carried=min(top, candidates))

    def runs(self, going_on: Container[str]) -> Iterator[tuple[Entrant, int]]:
        """Every (config, seed), all configs on one seed before the next seed: stopped early, the
        test has compared them all on fewer seeds.

        :param going_on: the hashes of those that get more than the first seed.
        """
        return (
            (entrant, seed)
            for seed in self.seeds
            for entrant in self.entrants
            if seed == self.seeds[0] or entrant.config_hash in going_on
        )

    @property
    def candidates(self) -> tuple[str, ...]:
        """Their hashes, by rank."""
        return tuple(e.config_hash for e in self.entrants if e.purpose == "candidate")

    @property
    def narrows(self) -> bool:
        """Whether the first seed says who gets the others."""
        return len(self.seeds) > 1 and len(self.candidates) > self.carried

    @property
    def spread(self) -> tuple[str, ...]:
        """Hashes of the configs that span the ranking, by rank."""
        members = sorted((e for e in self.entrants if e.in_spread), key=lambda e: e.rank)
        return tuple(entrant.config_hash for entrant in members)


def _spread_ranks(configs: int, count: int) -> list[int]:
    """``count`` ranks evenly over 1 … configs, both ends included; fewer where there are fewer."""
    count = min(count, configs)
    if count <= 1:
        return [1][:count]
    return [1 + round(i * (configs - 1) / (count - 1)) for i in range(count)]


def fresh_seeds(campaign_seed: int, used: Set[int], count: int) -> list[int]:
    """The campaign's seeds for long runs: the first ``count`` that no short run used.

    :raises CampaignError: where it has fewer left.
    """
    block = seeds_of(campaign_seed, "long runs")
    fresh = [seed for seed in block if seed not in used][:count]
    if len(fresh) < count:
        raise CampaignError(
            f"a campaign has {len(fresh)} seeds for long runs and {count} were asked for; "
            "ask for fewer with --seeds"
        )
    return fresh


@dataclass(frozen=True, slots=True)
class LongRunSpec:
    """Turns (config, seed) into the spec of a long run of one campaign."""

    campaign: Campaign
    steps: int

    def __call__(self, config: AnyConfig, seed: int) -> TrialSpec:
        """The spec, its trial_id empty.

        Every step is in the curve, also on a GPU: a spike may last a few steps, and waiting for the
        device once a step costs little beside steps long enough to be stressed. The time limit is
        the short runs', times as many times more steps; memory needs no more.
        """
        short = self.campaign.trial_spec(config, seed)
        more = max(1.0, self.steps_of(config) / self._short_steps(config))
        return short.model_copy(
            update={
                "budget": self.budget,
                "horizon_steps": None,  # the budget: the schedule is run to its end
                "cooldown_steps": 0,
                "average": None,
                "log_every": 1,
                "limits": short.limits.model_copy(update={"wall_s": short.limits.wall_s * more}),
            }
        )

    @property
    def budget(self) -> Budget:
        """In steps, or where the campaign's budget counts tokens in those of the baseline's steps,
        so that long runs are equal in what short ones were."""
        trainer = self.campaign.menu.trainer
        if trainer is not None and not self._reads_steps(trainer):
            raise CampaignError(
                f"the command of {self.campaign.directory} is not told how many steps to train, so "
                "no longer run can be asked of it; begin a campaign whose command has {steps}, or "
                "whose menu has its budget in steps where the script reads it from the values"
            )
        if self.campaign.settings.budget.unit == "tokens":
            tokens = self.steps * gpt(self.campaign.menu.baseline).tokens_per_step
            return Budget(unit="tokens", amount=tokens)
        return Budget(unit="steps", amount=self.steps)

    def _reads_steps(self, trainer: TrainerTable) -> bool:
        """Whether a command does what its budget of steps says. Of values in a file or in variables
        nobody sees what is read: there the menu has to say it, by a budget of its own."""
        if "steps" in trainer.asked:
            return True
        return trainer.tells("steps") and self.campaign.menu.campaign.budget.unit == "steps"

    def steps_of(self, config: AnyConfig) -> int:
        """Steps that this config takes."""
        return self.budget.steps(config.tokens_per_step) or self.steps

    def expected_s(self, config: AnyConfig) -> float:
        """How long a run should take, by the latest short run's pace."""
        short = self._measured(config)
        if isinstance(short, CommandOk):
            times = self.steps_of(config) / self._short_steps(config)
            return short.setup_s + short.train_s * times
        return short.setup_s + self.steps_of(config) * short.step_ms / 1000 + short.eval_s

    def _short_steps(self, config: AnyConfig) -> int:
        counted = self.campaign.settings.budget.steps(config.tokens_per_step)
        # A command that does not count its steps is taken to do as many as are asked for.
        return counted or self._measured(config).steps or self.steps

    def _measured(self, config: AnyConfig) -> Measured:
        """A short run of it, the latest."""
        for record in self.campaign.history.measurements(config.config_hash):
            if not isinstance(record.result, TrialFailed):
                return record.result
        raise CampaignError(
            f"no short run of config {config.config_hash[:12]} was measured, though it is ranked; "
            "run autoresearch reindex"
        )
