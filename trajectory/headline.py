"""Derive a campaign's one result; every screen, file and tool shows this object.

Its ``outlook`` says what further runs would tell. A gain that was not confirmed needs the fresh
seeds of :func:`trajectory.power.seeds_to_tell`. Without a keep in k iterations, the next MORE k
bring one in half of all searches. By Laplace's rule of succession it would be k + 1, but searches
differ: where the baseline's runs were lucky, hardly any idea is kept (bench/night_power.py).
"""

import math
from typing import Literal, Self

from pydantic import Field, computed_field

from autoresearch.values import Finite, Frozen, NonNegative, NonNegativeInt, PositiveInt
from autoresearch.words import counted, duration_text, millions_text
from trainer.schema import BPB, Measure
from trajectory.confirmation import CONFIRM_SEEDS, LEVEL
from trajectory.confirmed import Confirmed, FreshGain
from trajectory.power import POWER, Power, seeds_to_tell
from trajectory.ranking import Posteriors, Ranked
from trajectory.rows import CampaignRow, Rules
from trajectory.spending import RUNS_PER_ITERATION
from trajectory.statistics.intervals import student_t

Conclusion = Literal["confirmed", "not confirmed", "claimed", "nothing kept", "nothing measured"]
MORE = 5
NEARLY = 0.05
"""Largest relative difference of two sizes that is not reported."""
TITLES = {
    "nothing measured": "Nothing has been measured yet",
    "nothing kept": "Nothing is better than the baseline yet",
}


class Headline(Frozen):
    """A campaign's result: that of its latest confirmation, or else the search's own claim.

    The config is the confirmation's own choice, made before its runs, even where the incumbent or
    the ranking's first is another one by now. Differences are of objectives: negative is better.
    """

    verdict: Conclusion
    """``claimed``: by the runs that chose the config. ``nothing kept``: the baseline is still the
    best."""
    iter: NonNegativeInt | None = None
    config_hash: str | None = None
    delta: Finite | None = None
    """Its difference from the baseline; None if there is no estimate."""
    lo: Finite | None = None
    hi: Finite | None = None
    """Its 95 % interval."""
    params: PositiveInt | None = None
    """Its parameters; None for a command."""
    baseline_params: PositiveInt | None = None
    first_now: NonNegativeInt | None = None
    """The iteration that the ranking has first now, if that is not the confirmed one."""
    smallest_gain: NonNegative | None = None
    """The smallest gain, measured on all seeds of a race, that the search would have kept; None
    without noise."""
    power: Power | None = None
    """The gain that this search would find; None without noise."""
    more_iterations: PositiveInt | None = None
    """Further iterations for an even chance of a first keep, if nothing was kept."""
    more_seeds: PositiveInt | None = None
    """Further fresh seeds that would tell whether the gain is real."""
    more_s: NonNegative | None = None
    """Seconds of one lane that these iterations or seeds take."""
    title: str
    """The result as a heading."""
    line: str
    """The result with its basis, in one line."""
    measure: Measure = Field(exclude=True)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def sizes(self) -> str:
        """Its parameters and the baseline's, if they differ notably; empty otherwise."""
        return _growth(self.params, self.baseline_params)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def can_find(self) -> str:
        """The gain that this search would find, in one line; empty without noise."""
        if self.power is None:
            return ""
        return (
            f"an idea that gains {self.measure.size(self.power.gain)} {self.measure.short} "
            f"({self.power.in_sds:.2g} times the noise of one run) is kept and confirmed in "
            f"{POWER:.0%} of cases; half of that takes {self.power.halved_by}"
        )

    @computed_field  # type: ignore[prop-decorator]
    @property
    def outlook(self) -> str:
        """What further runs would tell, in one line; empty if nothing more is needed."""
        time = "" if self.more_s is None else f", {duration_text(self.more_s)}"
        if self.more_iterations is not None:
            more = f"{counted(self.more_iterations, 'more iteration')}{time}, bring a first keep"
            return f"not enough runs to tell: about {more} in half of such searches"
        if self.more_seeds is None:
            return ""
        seeds = counted(self.more_seeds, "more fresh seed")
        return f"not enough runs to tell: about {seeds}{time}, would confirm a gain as measured"

    @classmethod
    def of(
        cls,
        posteriors: Posteriors,
        found: Confirmed | None,
        campaign: CampaignRow | None,
    ) -> Self:
        """Return the result.

        :param found: the latest confirmation.
        :param campaign: the campaign's first row.
        """
        result = cls._without_outlook(posteriors, found, campaign)
        baseline, noise = posteriors.baseline, posteriors.noise
        if campaign is None or baseline is None or noise is None:
            return result
        rules = Rules.model_validate({name: getattr(campaign, name) for name in Rules.model_fields})
        more: dict[str, object] = {"power": Power.of(noise, rules, baseline.n)}
        runs = 0.0
        if noise.sigma_d == 0:
            return result
        if result.verdict == "nothing kept" and posteriors.evidence.iterations:
            more["more_iterations"] = iterations = MORE * posteriors.evidence.iterations
            runs = iterations * RUNS_PER_ITERATION
        elif result.verdict == "claimed":
            more["more_seeds"] = CONFIRM_SEEDS
            runs = 2 * CONFIRM_SEEDS
        elif found is not None and result.verdict == "not confirmed":
            more["more_seeds"] = seeds = seeds_more(found)
            runs = 2 * (seeds or 0)
        if runs:
            more["more_s"] = runs * baseline.train_s / baseline.n
        return result.model_copy(update=more)

    @classmethod
    def _without_outlook(
        cls, posteriors: Posteriors, found: Confirmed | None, campaign: CampaignRow | None
    ) -> Self:
        measure = campaign.measured_in if campaign else BPB
        if found is not None:
            return cls._confirmed(posteriors, found, measure)
        evidence = posteriors.evidence
        best = next(iter(posteriors.of_configs([evidence.incumbent_hash or ""])), None)
        if best is None:
            title = TITLES["nothing measured"]
            return cls(verdict="nothing measured", title=title, line=title, measure=measure)
        if best.delta_vs_baseline is None:
            return cls._nothing_kept(posteriors, measure, campaign)
        return cls._claimed(posteriors, best, measure)

    @classmethod
    def _confirmed(cls, posteriors: Posteriors, found: Confirmed, measure: Measure) -> Self:
        chosen, baseline = found.chosen, posteriors.evidence.baseline_hash
        gain = chosen.headline
        ranked = (one for one in posteriors.best(2) if one.config_hash != baseline)
        first = next(ranked, None)
        sizes = _sizes(posteriors, chosen.config_hash)
        changed = first is not None and first.config_hash != chosen.config_hash
        if gain is None:
            title = f"Not confirmed: the fresh runs of iteration {chosen.iter} give no estimate"
        else:
            title = f"{chosen.verdict.capitalize()}: {_in_words(measure, gain)}"
        return cls(
            verdict=chosen.verdict,
            iter=chosen.iter,
            config_hash=chosen.config_hash,
            delta=gain.delta if gain else None,
            lo=gain.lo if gain else None,
            hi=gain.hi if gain else None,
            first_now=first.iter if first is not None and changed else None,
            title=title,
            line="; ".join(filter(None, (found.headline, _growth(*sizes)))),
            params=sizes[0],
            baseline_params=sizes[1],
            measure=measure,
        )

    @classmethod
    def _claimed(cls, posteriors: Posteriors, best: Ranked, measure: Measure) -> Self:
        delta, lo, hi = best.delta_vs_baseline, best.delta_lo, best.delta_hi
        assert delta is not None
        sizes = _sizes(posteriors, best.config_hash)
        amount = f"{measure.signed(delta)} {measure.short}"
        span = "" if lo is None or hi is None else f" (95 % {measure.signed_span(lo, hi)})"
        side = f"{_size(measure, delta)} than the baseline"
        ends = ", by single runs" if lo is None or hi is None else _span(measure, delta, lo, hi)
        return cls(
            verdict="claimed",
            iter=best.iter,
            config_hash=best.config_hash,
            delta=delta,
            lo=lo,
            hi=hi,
            title=f"Not confirmed yet: {side}{ends}",
            line=(
                f"kept but not confirmed: iteration {best.iter}, {amount}{span} against the "
                f"baseline, by the {counted(best.n, 'run')} that chose it"
                f"{'; ' if _growth(*sizes) else ''}{_growth(*sizes)}"
            ),
            params=sizes[0],
            baseline_params=sizes[1],
            measure=measure,
        )

    @classmethod
    def _nothing_kept(
        cls, posteriors: Posteriors, measure: Measure, rules: CampaignRow | None
    ) -> Self:
        evidence, noise = posteriors.evidence, posteriors.noise
        line = f"nothing was kept in {counted(evidence.iterations, 'iteration')}"
        smallest = None
        if noise is not None and rules is not None and noise.sigma_d > 0:
            runs = posteriors.baseline.n if posteriors.baseline else 0
            smallest = rules.z_keep * noise.stderr(rules.max_runs, runs)
            line += (
                f"; the smallest gain that it would have kept, measured on {rules.max_runs} common "
                f"seeds, is {measure.size(smallest)} {measure.short}"
            )
        return cls(
            verdict="nothing kept",
            iter=0,
            config_hash=evidence.baseline_hash,
            smallest_gain=smallest,
            title=TITLES["nothing kept"],
            line=line,
            measure=measure,
        )


def seeds_more(found: Confirmed) -> int | None:
    """Return the further fresh seeds that would confirm the measured gain; None if there is no gain
    or they are too many."""
    gain = found.chosen.headline
    if gain is None or gain.delta >= 0:
        return None
    level = 1 - (1 - LEVEL) / (1 + found.earlier_analyses)
    stderr = (gain.hi - gain.lo) / 2 / student_t((1 + level) / 2, gain.dof)
    sd = stderr * math.sqrt(gain.seeds)
    seeds = seeds_to_tell(-gain.delta, sd, gain.seeds, found.earlier_analyses + 1)
    return None if seeds is None else seeds - gain.seeds


def _sizes(posteriors: Posteriors, config_hash: str) -> tuple[int | None, int | None]:
    """Return the parameters of a config and of the baseline, as far as they are known."""
    entry, baseline = posteriors.configs.get(config_hash), posteriors.baseline
    return entry.params if entry else None, baseline.params if baseline else None


def _growth(params: int | None, baseline_params: int | None) -> str:
    """Return both sizes as a clause if they differ by over a twentieth; empty otherwise."""
    if params is None or baseline_params is None:
        return ""
    if abs(params / baseline_params - 1) <= NEARLY:
        return ""
    return f"{millions_text(params)} parameters, the baseline {millions_text(baseline_params)}"


def _in_words(measure: Measure, gain: FreshGain) -> str:
    side = f"{_size(measure, gain.delta)} than the baseline"
    return f"{side}{_span(measure, gain.delta, gain.lo, gain.hi)}"


def _size(measure: Measure, delta: float) -> str:
    side = "better" if delta <= 0 else "worse"
    return f"{measure.size(abs(delta))} {measure.short} {side}"


def _span(measure: Measure, delta: float, lo: float, hi: float) -> str:
    ends = (-hi, -lo) if delta <= 0 else (lo, hi)
    span = " … ".join(measure.size(end).replace("-", "\u2212") for end in ends)
    return f" (95 %: {span})"
