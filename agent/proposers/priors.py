"""Prepare earlier campaigns for this campaign's proposers.

A prior informs only proposers: measuring, ranking and judging ignore it. Scores of another campaign
are on another scale (another text, another budget, bits per token instead of per byte). So each
config is given by its gain: its posterior mean minus the mean of that campaign's baseline, in
standard deviations of one run there. That unit depends on what was measured and how, not on which
configs were tried. If no config was run twice, it is estimated from neighbors, configs that differ
least (:func:`_noise_of_neighbors`). It then includes their true differences, so gains are rather
too small. If no baseline is known, there are no gains, and only the findings about the best configs
go to a language model.

A gain belongs to the changes. So a config is used only if everything that differs from its own
baseline is a knob of this menu at an allowed value. Its other values are dropped if this menu does
not have or allow them.
"""

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, TypeAlias

from agent.menu.files import ProxyMenu, menu_of
from autoresearch.campaign_files import names, status_of
from autoresearch.errors import AutoresearchError, CampaignError, MenuError
from autoresearch.layout import JOURNAL_FILE
from autoresearch.values import Scalar
from autoresearch.words import changes_text
from trainer.schema import AnyConfig
from trajectory import ranking
from trajectory.evidence import Evidence
from trajectory.formats.importing import CampaignSource, read_campaign_source
from trajectory.formats.standings import Standings
from trajectory.journal import read_rows
from trajectory.ranking import Noise
from trajectory.rows import CampaignRow

MOST_CONFIGS = 400
"""Most configs of one prior, spread evenly over its ranking."""
MOST_LINES = 12
NOTE = "priors: "
"""Prefix of the journal's note on the priors of a session."""


@dataclass(frozen=True, slots=True)
class PriorConfig:
    """One config of another campaign, in this menu's knobs."""

    values: Mapping[str, Scalar]
    """Its values of the common knobs, all allowed by this menu."""
    gain: float
    """Standard deviations of one run there; negative is better."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A measured config of another campaign, in that campaign's own terms."""

    said: str
    """Its changes, or their name."""
    gain: float | None
    n: int
    action: str
    reason: str
    """Untrusted words."""
    values: Mapping[str, Any] | None = None
    """Its values, if they are known."""


@dataclass(frozen=True, slots=True)
class Prior:
    """One earlier campaign."""

    source: str
    sha256: str
    """SHA-256 of the file it was read from."""
    measured: int
    """Number of configs it measured."""
    configs: tuple[PriorConfig, ...]
    findings: tuple[Finding, ...]
    """The best configs, by posterior mean."""
    dropped_values: int
    """Number of values missing from the configs used: knobs of this menu, at values it does not
    allow."""
    why_no_gains: str | None
    """Why no gain is known; None if gains are known."""
    left_out: int = 0
    """Number of lines of another tool's file that could not be read."""
    is_rough: bool = False
    """Whether the unit of the gains is estimated from neighbors."""

    def __str__(self) -> str:
        text = f"{self.source} (sha256 {self.sha256[:12]}): {self.measured} configs measured, "
        if self.left_out:
            text += f"{self.left_out} unreadable lines left out, "
        if self.why_no_gains is not None:
            return f"{text}none used by the sampler: {self.why_no_gains}"
        text += f"{len(self.configs)} used by the sampler"
        if self.dropped_values:
            text += f" without {self.dropped_values} values outside this menu"
        if self.is_rough:
            text += ", with noise estimated from similar configs, since it ran none twice"
        return text


def earlier_campaign(own: Path, menu: ProxyMenu) -> Path | None:
    """Return the newest campaign of this user beside ``own`` with the same menu and that began
    before it; None if there is none."""
    mine = _first_row(own)
    found = []
    for name in names(own.parent):
        directory = own.parent / name
        status = status_of(directory, JOURNAL_FILE)
        if name == own.name or status is None or status.st_uid != os.getuid():
            continue
        row = _first_row(directory)
        if row is None or (mine is not None and row.created_at >= mine.created_at):
            continue
        if (mine is None or row.id != mine.id) and _is_of(row, menu):
            found.append((row.created_at, directory))
    return max(found)[1] if found else None


def _first_row(directory: Path) -> CampaignRow | None:
    with suppress(AutoresearchError):
        first = next(read_rows(directory / JOURNAL_FILE), None)
        return first if isinstance(first, CampaignRow) else None
    return None


def read_priors(paths: Iterable[Path], menu: ProxyMenu, own: Path) -> tuple[Prior, ...]:
    """Read the campaigns in these directories or files, in this menu's knobs.

    :param own: directory of the campaign they are for, which is not a prior of itself.
    :raises FormatError: if one is not a trajectory.
    :raises CampaignError: if one is the campaign itself, or a duplicate.
    """
    first = next(read_rows(own / JOURNAL_FILE), None)
    known = {first.id if isinstance(first, CampaignRow) else None: own}
    sources = [read_campaign_source(path) for path in paths]
    for source in sources:
        if source.identity in known:
            raise CampaignError(
                f"{source.path} is the same campaign as {known[source.identity]}, which would count"
                " twice; name each earlier campaign with one --prior"
            )
        known[source.identity] = source.path
    return tuple(_prior(source, menu) for source in sources)


def note_on(priors: Sequence[Prior], before: str | None) -> str | None:
    """Return the note on priors that the journal needs at the start of a session.

    :param before: its latest note on priors, if there is one.
    :return: None if nothing has changed since.
    """
    now = NOTE + ("; ".join(map(str, priors)) or "none from here on")
    known = before if before is not None else f"{NOTE}none from here on"
    return None if now == known else now


def _prior(source: CampaignSource, menu: ProxyMenu) -> Prior:
    baseline, sigma, findings = _own(source, menu) if source.foreign is None else _foreign(source)
    is_rough = sigma is None
    why = None
    if not findings:
        why = "it measured nothing"
    elif baseline is None:
        why = "its baseline's config or score is not known"
    elif all(finding.gain is None for finding in findings):
        why = "it ran no config twice and has too few to estimate its noise"
    shared_configs = [
        (PriorConfig(values, finding.gain), dropped)
        for finding in findings[:: max(1, -(-len(findings) // MOST_CONFIGS))]
        if baseline is not None and finding.values is not None and finding.gain is not None
        for values, dropped in [_in_common(finding.values, baseline, menu)]
        if values
    ]
    if why is None and not shared_configs:
        why = "this menu has no knob or value for what distinguishes its configs"
    return Prior(
        source=str(source.path),
        sha256=source.sha256,
        measured=len(findings),
        configs=tuple(config for config, _ in shared_configs),
        findings=tuple(findings[:MOST_LINES]),
        dropped_values=sum(dropped for _, dropped in shared_configs),
        why_no_gains=why,
        left_out=len(source.foreign.provenance.skipped) if source.foreign else 0,
        is_rough=is_rough and why is None,
    )


_Known: TypeAlias = tuple[Mapping[str, Any] | None, float | None, list[Finding]]
"""The baseline's values, the standard deviation of one run, and the configs, the best first."""


def _own(source: CampaignSource, menu: ProxyMenu) -> _Known:
    evidence, first = Evidence(source.rows), source.rows[0]
    # Ratios are not fields; only the menu's own formulas can read them.
    reads = isinstance(first, CampaignRow) and bool(menu.readings) and _is_of(first, menu)

    def values_of(config: AnyConfig) -> Mapping[str, Any]:
        return menu.knob_values(config) if reads else config.said

    baseline = evidence.configs.get(evidence.baseline_hash or "")
    values, mean = None, None
    if baseline is not None and baseline.n:
        values, mean = values_of(baseline.config), baseline.mean
    noise = Noise.of(evidence)
    sigma = noise.sigma if noise else None
    ranked = ranking.top(evidence, len(evidence.configs))
    unit = sigma or _noise_of_neighbors([(values_of(o.config), o.objective) for o in ranked])
    findings = []
    for one in ranked:
        said, gain = values_of(one.config), _gain(one.objective, mean, unit)
        changed = _changed(said, values)
        findings.append(Finding(changed, gain, one.n, one.action, one.reason, said))
    return values, sigma, findings


def _foreign(source: CampaignSource) -> _Known:
    assert source.foreign is not None
    standings = Standings.of(source.foreign.runs)
    baseline, noise = standings.baseline, standings.noise
    values, mean = (baseline.values, baseline.mean) if baseline else (None, None)
    sigma = noise.sigma if noise else None
    ranked = standings.top(len(standings.configs))
    unit = sigma or _noise_of_neighbors([(o.entry.values, o.objective) for o in ranked])
    findings = []
    for standing in ranked:
        one, gain = standing.entry, _gain(standing.objective, mean, unit)
        said = one.name or "" if one.values is None else _changed(one.values, values)
        findings.append(Finding(said, gain, one.n, one.action, one.reason, one.values))
    return values, sigma, findings


FEWEST_NEIGHBORS = 5


def _noise_of_neighbors(
    measured: Sequence[tuple[Mapping[str, Any] | None, float]],
) -> float | None:
    """Return an estimate of one run's standard deviation from configs that ran once; None for fewer
    than FEWEST_NEIGHBORS or equal scores.

    A config's neighbors are those that differ from it in the fewest values. Medians of the
    differences in score ignore ruinous ones.
    """
    known = [(values, score) for values, score in measured if values is not None]
    known = known[:MOST_CONFIGS]
    if len(known) < FEWEST_NEIGHBORS:
        return None
    apart = []
    for values, score in known:
        by_distance: dict[int, list[float]] = {}
        for other, there in known:
            if other is not values:
                changed = sum(values.get(name) != value for name, value in other.items())
                by_distance.setdefault(changed, []).append(abs(score - there))
        apart.append(median(by_distance[min(by_distance)]))
    # A normal variable's median magnitude is 0.6745 standard deviations, a difference has two.
    return median(apart) / (0.6745 * math.sqrt(2)) or None


def _gain(objective: float, baseline: float | None, sigma: float | None) -> float | None:
    return (objective - baseline) / sigma if sigma and baseline is not None else None


def _changed(values: Mapping[str, Any], baseline: Mapping[str, Any] | None) -> str:
    base = baseline or {}
    changed = {n: v for n, v in values.items() if v is not None and base.get(n) != v}
    return changes_text(changed) or "its baseline"


def _is_of(row: CampaignRow, menu: ProxyMenu) -> bool:
    """Return whether the campaign's menu has the same content as this one."""
    if row.menu_sha256 == menu.sha256:
        return True
    try:
        return menu_of(row).content == menu.content
    except MenuError:  # of an older version
        return False


def _in_common(
    values: Mapping[str, Any], baseline: Mapping[str, Any], menu: ProxyMenu
) -> tuple[dict[str, Scalar], int]:
    """Return a config's values of this menu, and the number of its knobs' other values. Both are
    empty if a change is among the latter."""
    common: dict[str, Scalar] = {}
    dropped = 0
    for name in values.keys() | baseline.keys():
        value = values.get(name)
        domain = menu.domains.get(name)
        if domain is not None and value is not None and domain.contains(value):
            common[name] = domain.normal(value)
        elif value != baseline.get(name):
            return {}, 0
        elif domain is not None:
            dropped += 1
    return {name: common[name] for name in menu.knobs if name in common}, dropped
