"""Earlier campaigns, as far as they can be told to the proposers of this one.

A prior informs whoever proposes and nobody else: what is measured, ranked and judged here knows
nothing of it. Scores of another campaign are not on this one's scale (another text, another budget,
bits per token instead of per byte), so each config is told by its gain: its posterior mean against
the mean of that campaign's own baseline, in standard deviations of one run there. That unit depends
on what was measured and how, not on which configs happened to be tried. Where it is unknown,
because no config was run twice, or where no baseline is known, there are no gains, and only what
was said about the best configs is told, to a language model.

A gain belongs to what was changed. So a config is told only where all that sets it apart from its
own baseline are knobs of this menu at values it allows. Of its other values, those that this menu
does not have or allow are dropped.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent.menu.files import ProxyMenu, menu_of
from autoresearch.errors import CampaignError, MenuError
from autoresearch.layout import JOURNAL_FILE
from autoresearch.values import Scalar
from autoresearch.words import changes_text
from trainer.spec import AnyConfig
from trajectory import ranking
from trajectory.evidence import Evidence
from trajectory.formats.imported import CampaignSource, read_campaign_source
from trajectory.formats.standings import Standings
from trajectory.journal import read_rows
from trajectory.ranking import Noise
from trajectory.rows import CampaignRow, parse_row

MOST_TOLD = 400
"""Configs of one prior, spread evenly over its ranking where it has more."""
MOST_LINES = 12
NOTE = "priors: "
"""How the journal's note on the priors of a sitting begins."""


@dataclass(frozen=True, slots=True)
class PriorConfig:
    """One config of another campaign, in this menu's knobs."""

    values: Mapping[str, Scalar]
    """Its values for the knobs in common, each a value this menu allows."""
    gain: float
    """In standard deviations of one run there; negative is better."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One of another campaign's best configs, as a language model is told of it."""

    said: str
    """What was changed, or the name of what was."""
    gain: float | None
    n: int
    action: str
    reason: str
    """Untrusted words."""


@dataclass(frozen=True, slots=True)
class Prior:
    """One earlier campaign."""

    source: str
    sha256: str
    """SHA-256 of the file it was read from."""
    measured: int
    """Configs it measured."""
    configs: tuple[PriorConfig, ...]
    findings: tuple[Finding, ...]
    """The best, by posterior mean."""
    dropped_values: int
    """Values missing from configs that are told: knobs this menu has, at values it does not
    allow."""
    why_no_gains: str | None
    """Why no gain is known; None where they are."""
    left_out: int = 0
    """Lines of it that could not be read."""

    def __str__(self) -> str:
        text = f"{self.source} (sha256 {self.sha256[:12]}): {self.measured} configs measured, "
        if self.left_out:
            text += f"{self.left_out} lines that could not be read left out, "
        if self.why_no_gains is not None:
            return f"{text}none told to the sampler: {self.why_no_gains}"
        text += f"{len(self.configs)} told to the sampler"
        if self.dropped_values:
            text += f" without {self.dropped_values} values outside this menu"
        return text


def read_priors(paths: Iterable[Path], menu: ProxyMenu, own: Path) -> tuple[Prior, ...]:
    """The campaigns in these directories or files, in this menu's knobs.

    :param own: the directory of the campaign they are for, whose own results are no prior.
    :raises FormatError: where one is no trajectory.
    :raises CampaignError: where one is the campaign itself, or another of them once more.
    """
    own_id = _campaign_id(own)
    sources: dict[str, CampaignSource] = {}
    for path in paths:
        source = read_campaign_source(path)
        if source.identity == own_id:
            raise CampaignError(
                f"{path} is the campaign itself, and what it has measured already counts; name an"
                " earlier one with --prior"
            )
        if source.identity in sources:
            raise CampaignError(
                f"{path} is the same campaign as {sources[source.identity].path}, which would count"
                " twice; name it with one --prior"
            )
        sources[source.identity] = source
    return tuple(_prior(source, menu) for source in sources.values())


def _campaign_id(directory: Path) -> str | None:
    """None where no campaign has begun there."""
    journal = directory / JOURNAL_FILE
    first = next(read_rows(journal), None) if journal.is_file() else None
    return first.id if isinstance(first, CampaignRow) else None


def note_on(priors: Sequence[Prior], before: str | None) -> str | None:
    """What the journal must be told at the start of a sitting.

    :param before: its latest note on priors, if there is one.
    :return: None where nothing has changed since.
    """
    now = NOTE + ("; ".join(map(str, priors)) or "none from here on")
    known = before if before is not None else f"{NOTE}none from here on"
    return None if now == known else now


@dataclass(frozen=True, slots=True)
class _Entry:
    """A measured config of either kind of campaign."""

    values: Mapping[str, Any] | None
    difference: float | None
    """Posterior mean less the baseline's mean."""
    n: int
    action: str
    reason: str
    name: str | None = None


def _prior(source: CampaignSource, menu: ProxyMenu) -> Prior:
    entries, baseline, sigma = (
        _foreign(source) if source.foreign is not None else _own(source, menu)
    )
    why = None
    if not entries:
        why = "it measured nothing"
    elif baseline is None:
        why = "its baseline's config or score is not known"
    elif not sigma:
        why = "it ran no config twice, so the size of its noise is not known"
    spread = entries[:: max(1, -(-len(entries) // MOST_TOLD))]
    told = [
        (PriorConfig(values, entry.difference / sigma), dropped)
        for entry in spread
        if sigma and baseline is not None and entry.values is not None
        if entry.difference is not None
        for values, dropped in [_in_common(entry.values, baseline, menu)]
        if values
    ]
    if why is None and not told:
        why = "nothing that sets its configs apart can be said in this menu's knobs"
    return Prior(
        source=str(source.path),
        sha256=source.sha256,
        measured=len(entries),
        configs=tuple(config for config, _ in told),
        findings=tuple(_finding(entry, baseline, sigma) for entry in entries[:MOST_LINES]),
        dropped_values=sum(dropped for _, dropped in told),
        why_no_gains=why,
        left_out=source.left_out,
    )


def _own(
    source: CampaignSource, menu: ProxyMenu
) -> tuple[list[_Entry], Mapping[str, Any] | None, float | None]:
    """Its configs, the best first; the baseline's values; the sd of one run."""
    rows = [parse_row(line) for line in source.journal_lines]
    evidence = Evidence(rows)
    first = rows[0] if rows else None
    is_same_menu = isinstance(first, CampaignRow) and _is_of(first, menu)

    def values_of(config: AnyConfig) -> Mapping[str, Any]:
        # Ratios are no fields, and only the menu's own formulas read them back.
        if is_same_menu and menu.readings:
            return menu.knob_values(config)
        return config.said

    baseline = evidence.configs.get(evidence.baseline_hash or "")
    noise = Noise.of(evidence.tally)
    mean = baseline.mean if baseline is not None and baseline.n else None
    entries = [
        _Entry(
            values=values_of(ranked.config),
            difference=None if mean is None else ranked.posterior_bpb - mean,
            n=ranked.n,
            action=ranked.action,
            reason=ranked.reason,
        )
        for ranked in ranking.top(evidence, len(evidence.configs))
    ]
    values = values_of(baseline.config) if baseline is not None and mean is not None else None
    return entries, values, noise.sigma if noise else None


def _is_of(row: CampaignRow, menu: ProxyMenu) -> bool:
    """Return whether the campaign's menu says what this one says."""
    if row.menu_sha256 == menu.sha256:
        return True
    try:
        return menu_of(row).content == menu.content
    except MenuError:  # of an older version
        return False


def _foreign(source: CampaignSource) -> tuple[list[_Entry], Mapping[str, Any] | None, float | None]:
    assert source.foreign is not None
    standings = Standings.of(source.foreign.runs)
    baseline = standings.baseline
    entries = [
        _Entry(
            values=config.values,
            difference=None if baseline is None else standing.posterior - baseline.mean,
            n=config.n,
            action=config.action,
            reason=config.reason,
            name=config.name,
        )
        for standing in standings.top(len(standings.configs))
        for config in (standing.entry,)
    ]
    noise = standings.noise
    return entries, baseline.values if baseline else None, noise.sigma if noise else None


def _in_common(
    values: Mapping[str, Any], baseline: Mapping[str, Any], menu: ProxyMenu
) -> tuple[dict[str, Scalar], int]:
    """What of a config this menu can say, and how many values of its knobs it cannot; nothing where
    a change is among those."""
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


def _finding(entry: _Entry, baseline: Mapping[str, Any] | None, sigma: float | None) -> Finding:
    gain = entry.difference / sigma if sigma and entry.difference is not None else None
    if entry.values is None:
        said = entry.name or ""
    else:
        base = baseline or {}
        changed = {n: v for n, v in entry.values.items() if v is not None and base.get(n) != v}
        said = changes_text(changed) or "its baseline"
    return Finding(said, gain, entry.n, entry.action, entry.reason)
