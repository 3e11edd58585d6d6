"""Plan a ladder's sizes and lengths so that it fits the time it is given.

The sizes are even steps in the logarithm of the parameters, and each rung's length keeps the tokens
per parameter. Every rung but the largest is also trained for as long as the next one. Along a
single line of tokens per parameter, the two exponents of ``E + A N^-alpha + B D^-beta`` cannot be
separated (Hoffmann et al. 2022, arXiv 2203.15556, fit over a plane of both). A pair of equal size
and a pair of equal length at every rung separates them.

The winner and the baseline are trained at the same sizes and lengths on the same seeds. Each has
its own ratios of shape and its own rates, scaled by the transfer rules. Rungs below the two largest
get all the seeds, which cost little there.

The largest size is the one at which the whole ladder takes the time given, by the campaign's own
pace. If it is smaller, it is the one whose length goes over the corpus EPOCHS times: up to about
four epochs, repeated text is nearly as good as new (Muennighoff et al. 2023, arXiv 2305.16264).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from autoresearch.errors import CampaignError, TargetError
from autoresearch.words import duration_text
from funnel.ladder.shapes import Pace, departure, own_params, scaled
from funnel.transfer.carry import carry
from trainer.schema import Config, TrialFailed, gpt
from trajectory.reading import Results
from trajectory.rows import (
    FinalistsRow,
    LadderAsked,
    LadderPlanRow,
    LadderRun,
    Recipe,
    StressRow,
)

if TYPE_CHECKING:
    from agent.search.campaign import Campaign  # it loads the database, and `report` needs none


@dataclass(frozen=True, slots=True)
class Candidates:
    """The two recipes, and the schedule that they were found with."""

    winner: Config
    chosen_by: Literal["stress", "search"]
    baseline: Config
    source_steps: int
    """Steps of the schedule that their learning rates were found with."""

    def recipes(self) -> Iterator[tuple[Recipe, Config]]:
        """Yield each recipe with its name; only the winner, if it is the baseline itself."""
        yield "winner", self.winner
        if self.baseline != self.winner:
            yield "baseline", self.baseline


def candidates_of(campaign: Campaign) -> Candidates:
    """Return the baseline and the winner: the best of the latest stress test, else the incumbent.

    :raises CampaignError: if nothing was measured.
    """
    finalist = best_finalist(campaign.results)
    if finalist is not None:
        config, steps = finalist
        return Candidates(config, "stress", gpt(campaign.menu.baseline), steps)
    incumbent = campaign.evidence.incumbent_hash
    if incumbent is None:
        raise CampaignError(
            "nothing was measured in this campaign yet, so there is nothing to make a ladder of; "
            "run autoresearch loop first"
        )
    entry = campaign.evidence.configs[incumbent]
    settings = campaign.settings
    horizon = settings.horizon_steps or settings.budget.steps(entry.config.tokens_per_step)
    if horizon is None:  # a budget in seconds: use the most steps reached
        measured = campaign.results.measurements(incumbent)
        horizon = max(getattr(record.result, "steps", 0) or 0 for record in measured)
    return Candidates(gpt(entry.config), "search", gpt(campaign.menu.baseline), horizon)


def best_finalist(results: Results) -> tuple[Config, int] | None:
    """Return the best finalist of the latest stress test that has any, and the steps of its runs'
    schedule."""
    latest = next((row for row in results.newest(FinalistsRow) if row.finalists), None)
    if latest is None:
        return None
    name = latest.finalists[0].config_hash
    for row in results.newest(StressRow):
        if (row.config_hash, row.steps) == (name, latest.steps):
            result = row.trial.result
            done = None if isinstance(result, TrialFailed) else result.steps
            return gpt(row.config), done or latest.steps
    return None


SPAN = 12.0
"""Ratio of the largest rung's parameters to the smallest's for any number of rungs: two decades of
compute."""
NEAR_SIZES = tuple(2 ** (step / 16) for step in range(-2, 3))
"""Factors by which a rung's size may change to get a better shape."""
EPOCHS = 4
LEAST_PARAMS = 4_000
LEAST_STEPS = 50
"""Fewest steps of an informative run."""
SINGLE_SEED_RUNGS = 2
"""Number of largest rungs that get a single seed."""
SECONDS_PER_HOUR = 3600


@dataclass(frozen=True, slots=True)
class Planner:
    """Makes the plan of a ladder."""

    candidates: Candidates
    asked: LadderAsked
    seeds: tuple[int, ...]
    """Fresh seeds, as many as requested."""
    pace: Pace
    corpus_tokens: int
    """Tokens of the corpus that can be trained on."""
    fits: Callable[[Config], bool]
    """Returns whether a config's memory is within the limit of a trial."""

    def plan(self, at: str) -> LadderPlanRow:
        """Return the plan with the largest sizes that the time allows.

        :param at: the current time.
        :raises CampaignError: if the time is too short for the smallest ladder.
        :raises TargetError: if no shape of a recipe's kind has such a size.
        """
        # Small shapes are coarse, and a shape that was rounded far is a worse recipe, so nearby
        # sizes are used at which both recipes come nearest to their own ratios. The largest does
        # not grow, because it determines the time.
        *smaller, largest = self._sizes(self._largest())
        below = [step for step in NEAR_SIZES if step <= 1]
        runs = self._runs(
            [
                *(self._nearest(size, NEAR_SIZES) for size in smaller),
                self._nearest(largest, below),
            ]
        )
        return LadderPlanRow(
            at=at,
            asked=self.asked,
            winner=self.candidates.winner,
            chosen_by=self.candidates.chosen_by,
            baseline=self.candidates.baseline,
            source_steps=self.candidates.source_steps,
            runs=tuple(runs),
            notes=tuple(self._notes(runs)),
        )

    def would_make(self, plan: LadderPlanRow) -> bool:
        """Return whether an existing plan has the same recipes and options as this planner."""
        mine = self.candidates
        return (plan.asked, plan.winner, plan.baseline, plan.source_steps) == (
            self.asked,
            mine.winner,
            mine.baseline,
            mine.source_steps,
        )

    def _largest(self) -> int:
        limit_s = self.asked.hours * SECONDS_PER_HOUR
        low = math.log(SPAN * LEAST_PARAMS)
        smallest = self._runs(self._sizes(math.exp(low)))
        if not all(self.fits(run.config) for run in smallest):
            raise CampaignError(
                "the smallest ladder needs more memory than a trial has; give trials more, or make "
                "the baseline's sequences shorter in another campaign"
            )
        if (least_s := _total_s(smallest)) > limit_s:
            raise CampaignError(
                f"the smallest ladder of {self.asked.rungs} rungs takes {duration_text(least_s)} "
                f"by this campaign's pace, and {duration_text(limit_s)} were given; give more "
                "--hours, or fewer --rungs or --tokens-per-param"
            )
        # The corpus is long enough up to this size.
        most = EPOCHS * self.corpus_tokens / self.asked.tokens_per_param
        high = max(low, math.log(most))
        if self._is_feasible(high, limit_s):
            return round(math.exp(high))
        while high - low > 1e-2:
            middle = (low + high) / 2
            low, high = (middle, high) if self._is_feasible(middle, limit_s) else (low, middle)
        return round(math.exp(low))

    def _is_feasible(self, log_largest: float, limit_s: float) -> bool:
        """Return whether a ladder up to this size fits the time and the memory, and has shapes."""
        largest = math.exp(log_largest)
        flops = 6 * largest * self.asked.tokens_per_param * largest
        if self.pace.flop_s * flops > limit_s:
            return False  # skip the search for its shapes
        try:
            runs = self._runs(self._sizes(largest))
        except TargetError:
            return False
        return _total_s(runs) <= limit_s and all(self.fits(run.config) for run in runs)

    def _sizes(self, largest: float) -> list[float]:
        rungs = self.asked.rungs
        return [largest * SPAN ** ((rung - rungs) / (rungs - 1)) for rung in range(1, rungs + 1)]

    def _nearest(self, size: float, steps: Sequence[float]) -> float:
        found: list[tuple[float, float]] = []
        for step in steps:
            with suppress(TargetError):
                off = sum(
                    departure(shape, source)
                    for (_, shape), (_, source) in zip(
                        self._shapes(round(size * step)), self.candidates.recipes(), strict=True
                    )
                )
                found.append((off, size * step))
        return min(found)[1]

    def _runs(self, sizes: Sequence[float]) -> list[LadderRun]:
        runs: list[LadderRun] = []
        for rung, size in enumerate(sizes, start=1):
            shapes = self._shapes(round(size))
            for params in sizes[rung - 1 : rung + 1]:
                tokens = round(self.asked.tokens_per_param * params)
                runs += (self._run(name, rung, shape, tokens) for name, shape in shapes)
        return runs

    def _shapes(self, params: int) -> list[tuple[Recipe, Config]]:
        """Return the recipes at this size, the baseline at the winner's exact size."""
        shapes: list[tuple[Recipe, Config]] = []
        for name, config in self.candidates.recipes():
            shape = scaled(config, own_params(shapes[0][1]) if shapes else params)
            shapes.append((name, shape))
        return shapes

    def _run(self, recipe: Recipe, rung: int, shape: Config, tokens: int) -> LadderRun:
        source = self.candidates.winner if recipe == "winner" else self.candidates.baseline
        tokens = max(tokens, LEAST_STEPS * shape.seq_len)
        carried = carry(
            source,
            horizon_steps=self.candidates.source_steps,
            shape=shape,
            tokens=tokens,
        )
        # The launch plan's own rules, with the width's part applied by the trainer.
        config = carried.config.model_copy(
            update={"lr": carried.base_lr, "mup_base_width": carried.base_width}
        )
        return LadderRun(
            recipe=recipe,
            rung=rung,
            params=own_params(config),
            length=tokens,
            steps=carried.steps,
            config=config,
            seeds=self.seeds if rung <= self.asked.rungs - SINGLE_SEED_RUNGS else self.seeds[:1],
            expected_s=self.pace.run_s(config, carried.steps),
        )

    def _notes(self, runs: Sequence[LadderRun]) -> Iterator[str]:
        epochs = max(run.tokens for run in runs) / self.corpus_tokens
        if epochs > 1:
            yield (
                f"the longest runs go over the corpus {epochs:.1f} times: it has "
                f"{self.corpus_tokens:,} tokens to train on"
            )
        expected_s = _total_s(runs)
        if epochs > 0.98 * EPOCHS and expected_s < 0.9 * self.asked.hours * SECONDS_PER_HOUR:
            yield (
                f"it is the corpus that holds the ladder to {duration_text(expected_s)}, not the "
                "time; a larger one would let it grow"
            )


def _total_s(runs: Sequence[LadderRun]) -> float:
    return sum(run.expected_s * len(run.seeds) for run in runs)
