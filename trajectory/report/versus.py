"""Compare two campaigns: settings, findings, and whether their numbers may be compared.

Two scores may be compared only if both campaigns measured alike: text or script, budget, schedule
and backend. Then the winners' fresh runs are compared: the search's own claims favor luck. With
common seeds, the interval is Student's t over the differences by seed; else of independent means.
"""

import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import fmean, variance
from typing import Any

from autoresearch.campaign_files import read_file
from autoresearch.errors import CampaignError
from autoresearch.layout import JOURNAL_FILE, SETTINGS_FILE
from autoresearch.safe_text import plain
from autoresearch.values import Finite, Frozen, NonNegativeInt, PositiveInt
from autoresearch.words import changes_text
from trainer.schema import TrialFailed, difference
from trajectory import ranking
from trajectory.confirmation import FEWEST_SEEDS, LEVEL
from trajectory.confirmed import OWN_SCORE, SEARCH_TEXT, Confirmed
from trajectory.reading import Results
from trajectory.report.wording import cut
from trajectory.rows import ConfirmRow, EvaluationProtocol
from trajectory.statistics.population import Posterior

_PROTOCOL = {*EvaluationProtocol.model_fields, "train_tokens"} - {"reference", "seed"}
"""Fields of the first row that decide what a score means, beside the text, script and measure. The
reference and the seed decide what is searched."""
_NO_SETTINGS = {
    *("kind", "schema_", "id", "created_at", "sandbox", "corpus", "script", "measure"),
    *("menu_name", "menu_sha256", "menu_toml", "versions", "hardware"),
}


class Found(Frozen):
    """Hold the findings of one campaign."""

    directory: str
    campaign_id: str
    menu: str
    iterations: NonNegativeInt
    kept: NonNegativeInt
    best: str
    """Changes of its best config from its baseline."""
    claimed: str
    """Estimated difference of the best config from the baseline, by the search's own runs."""
    confirmed: str
    """Its result in one line, that of its latest confirmation if there was one."""


class ComparedCampaign(Results):
    """A campaign's results, as far as a comparison needs them."""

    def __init__(self, directory: Path) -> None:
        """Read the journal.

        :raises JournalError: if it is damaged.
        :raises CampaignError: if it has no first row.
        """
        self.directory = directory
        super().__init__(directory / JOURNAL_FILE)
        if self.campaign is None:
            raise CampaignError(f"{directory} has no first row yet; compare it once it has begun")
        self.row = self.campaign

    def found(self) -> Found:
        """Return what the campaign found."""
        baseline = self.evidence.configs.get(self.evidence.baseline_hash or "")
        measure, best = self.row.measured_in, next(iter(ranking.top(self.evidence, 1)), None)
        claimed = "nothing"
        if best is not None and best.delta_vs_baseline is not None:
            claimed = f"{measure.signed(best.delta_vs_baseline)} {measure.short}"
            if best.delta_lo is not None and best.delta_hi is not None:
                claimed += f" ({measure.signed_span(best.delta_lo, best.delta_hi)})"
        changed = difference(best.config, baseline.config) if best and baseline else {}
        return Found(
            directory=str(self.directory),
            campaign_id=self.row.id,
            menu=self.row.menu_name,
            iterations=self.evidence.iterations,
            kept=self.kept,
            best=plain(changes_text(changed)) or "the baseline",
            claimed=claimed,
            confirmed=self.headline().line,
        )

    def protocol(self) -> dict[str, Any]:
        """Return the facts that decide what a score means."""
        row = self.row
        facts = {"measure": f"{row.measured_in.unit}, {row.measured_in.better}"}
        if text := row.corpus:
            facts |= {"held-out text": text.heldout_sha256, "corpus": text.sha256}
            facts |= {"tokenizer": text.tokenizer}
        if row.script:
            facts |= {"script": row.script.sha256, "command": " ".join(row.script.command)}
            facts |= {"check": " ".join(row.script.check)} if row.script.check else {}
        return facts | {name: value for name, value in row if name in _PROTOCOL}

    def settings(self) -> dict[str, Any]:
        """Return the other settings."""
        own = {name: value for name, value in self.row if name not in _NO_SETTINGS | _PROTOCOL}
        try:
            kept = tomllib.loads(read_file(self.directory, SETTINGS_FILE).decode())
        except FileNotFoundError:
            kept = {}
        except (OSError, ValueError, RecursionError) as error:
            why = f"cannot be read ({error}); restore or remove it"
            raise CampaignError(f"{self.directory / SETTINGS_FILE} {why}") from error
        known = {*_PROTOCOL, "menu", "corpus", "tokenizer", *own}
        return own | {name: value for name, value in kept.items() if name not in known}

    def menu(self) -> dict[str, Any]:
        """Return the parts of a menu by name, such as ``knobs.lr`` or ``constants.d_model``."""
        try:
            menu = tomllib.loads(self.row.menu_toml)
        except ValueError as error:
            raise CampaignError(f"{self.row.id}'s menu is not TOML ({error})") from error
        parts: dict[str, Any] = {}
        for name, value in menu.items():
            if isinstance(value, dict) and name not in {"trainer", "campaign"}:
                parts |= {f"{name}.{inner}": _without_doc(one) for inner, one in value.items()}
            elif name not in {"name", "doc", "campaign"}:
                parts[name] = _without_doc(value)
        return parts

    def fresh_scores(self, found: Confirmed, text: str) -> dict[int, float]:
        """Return the objective of the confirmed winner by seed, on the text with this SHA-256, or
        on the search's own text if it is empty."""
        scores = {}
        for trial in (row.trial for row in self.rows_of(ConfirmRow)):
            result, of = trial.result, (trial.config_hash, trial.seed in found.seeds)
            if of == (found.chosen.config_hash, True) and not isinstance(result, TrialFailed):
                on = {"": result.objective, **{one.sha256: one.val_bpb for one in result.texts}}
                if text in on:
                    scores[trial.seed] = on[text]
        return scores


def _without_doc(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_doc(one) for one in value]
    return {k: v for k, v in value.items() if k != "doc"} if isinstance(value, dict) else value


class Differs(Frozen):
    """A value that differs; None where one campaign has none."""

    name: str
    a: str | None
    b: str | None


class Gap(Frozen):
    """Difference between the confirmed winners, A's objective minus B's: negative is better for
    A."""

    delta: Finite
    lo: Finite
    """95 % interval."""
    hi: Finite
    text: str
    seeds: PositiveInt
    """Seeds of the campaign with fewer of them."""
    paired: bool
    """Whether both were measured on the same seeds."""


class Versus(Frozen):
    """Campaign A compared with campaign B."""

    a: Found
    b: Found
    protocol: tuple[Differs, ...]
    settings: tuple[Differs, ...]
    menu: tuple[Differs, ...]
    machine: tuple[Differs, ...]
    comparable: bool
    why_not: tuple[str, ...]
    gap: Gap | None
    conclusion: str

    def facts(self) -> Iterator[tuple[str, str]]:
        """Yield the comparison as labels and lines."""
        for side, found in (("A", self.a), ("B", self.b)):
            yield side, f"{found.directory}, menu {found.menu}"
            yield f"{side} found", f"{found.kept} of {found.iterations} kept; best: {found.best}"
            yield f"{side} gain", f"claimed {found.claimed}; {found.confirmed}"
        for name in ("protocol", "settings", "menu", "machine"):
            values: tuple[Differs, ...] = getattr(self, name)
            yield from ((name, f"{one.name}: {one.a or '-'} | {one.b or '-'}") for one in values)
            if not values:
                yield name, "the same"
        yield "compare", self.conclusion


def compare_campaigns(a: Path, b: Path) -> Versus:
    """Compare two campaigns by their journals.

    :raises JournalError: if a journal is damaged.
    :raises CampaignError: if a campaign has no first row.
    """
    left, right = ComparedCampaign(a), ComparedCampaign(b)
    protocol = _differences(left.protocol(), right.protocol())
    machines = [{**one.row.hardware, **one.row.versions} for one in (left, right)]
    why_not = tuple(f"{one.name} differs" for one in protocol)
    if left.row.budget.unit == "seconds" and left.row.hardware != right.row.hardware:
        why_not += ("the budget is in seconds and the hardware differs",)
    gap = None if why_not else _gap(left, right)
    return Versus(
        a=left.found(),
        b=right.found(),
        protocol=protocol,
        settings=_differences(left.settings(), right.settings()),
        menu=_differences(left.menu(), right.menu()),
        machine=_differences(*machines),
        comparable=not why_not,
        why_not=why_not,
        gap=gap,
        conclusion=_conclusion(left, right, why_not, gap),
    )


def _differences(a: Mapping[str, Any], b: Mapping[str, Any]) -> tuple[Differs, ...]:
    names = [*a, *(name for name in b if name not in a)]
    return tuple(
        Differs(name=plain(name), a=_shown(a.get(name)), b=_shown(b.get(name)))
        for name in names
        if a.get(name) != b.get(name)
    )


def _shown(value: Any) -> str | None:
    if value is None:
        return None
    if isinstance(value, dict):
        return cut(", ".join(f"{name} {_shown(one)}" for name, one in value.items()), 120)
    return cut(plain(str(value)), 120)


def _gap(a: ComparedCampaign, b: ComparedCampaign) -> Gap | None:
    """Return the difference of the confirmed winners; None without fresh runs of both."""
    found, other = a.confirmed(), b.confirmed()
    if found is None or other is None:
        return None
    theirs = {text.sha256 for text in other.texts}
    text = next((one for one in found.texts if one.sha256 in theirs), None)
    sha256 = text.sha256 if text else ""
    ours, others = a.fresh_scores(found, sha256), b.fresh_scores(other, sha256)
    common = sorted(ours.keys() & others.keys())
    if min(len(ours), len(others)) < FEWEST_SEEDS:
        return None
    samples = [[*ours.values()], [*others.values()]]
    if paired := len(common) >= FEWEST_SEEDS:
        samples = [[ours[s] - others[s] for s in common]]
    delta = fmean(samples[0]) - (0.0 if paired else fmean(samples[1]))
    parts = tuple((variance(one) / len(one), len(one) - 1.0) for one in samples)
    analyses = 1 + max(found.earlier_analyses, other.earlier_analyses)
    half = Posterior(delta, parts).half_interval(1 - (1 - LEVEL) / analyses)
    own = OWN_SCORE if a.row.script else SEARCH_TEXT
    return Gap(
        delta=delta,
        lo=delta - half,
        hi=delta + half,
        text=text.name if text else own,
        seeds=min(len(one) for one in samples),
        paired=paired,
    )


def _conclusion(
    a: ComparedCampaign, b: ComparedCampaign, why_not: tuple[str, ...], gap: Gap | None
) -> str:
    if why_not:
        return f"their numbers may not be compared: {', '.join(why_not)}"
    if gap is None:
        if which := " and ".join(str(one.directory) for one in (a, b) if one.confirmed() is None):
            return (
                "their scores may be compared, but only confirmed ones should be; run autoresearch "
                f"confirm --campaign for {which}"
            )
        return "both are confirmed, but fewer than two seeds of each winner were measured"
    measure = a.row.measured_in
    winner = "no winner: the interval contains 0"
    if gap.hi < 0 or gap.lo > 0:
        winner = "A is better" if gap.hi < 0 else "B is better"
    seeds = f"{gap.seeds} {'common ' if gap.paired else ''}fresh seeds"
    return (
        f"{winner}; confirmed A minus confirmed B: {measure.signed(gap.delta)} {measure.short} "
        f"({measure.signed_span(gap.lo, gap.hi)}) on {seeds}, scored on the text {gap.text!r}"
    )
