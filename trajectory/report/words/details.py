"""What an iteration opens to in the page: texts and trials, packed so that ten thousand fit.

The texts are what others wrote (a language model, another tool), so they travel as data and never
as markup: JSON, deflated, in base64, which the page's script unpacks where a row is opened and puts
in place as text nodes. Every text has its invisible characters spelled out.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from autoresearch.values import Scalar
from autoresearch.words import duration_text
from trainer.spec import BPB, Measure, TrialFailed
from trajectory.proposals import Attempt, ProposerRecord
from trajectory.report.words.text import shown
from trajectory.report.words.wording import value_text
from trajectory.rows import IterationRow, TrialRecord

CHUNK = 100
"""Iterations packed together: opening one unpacks so many."""
_LEVEL = 6


@dataclass(frozen=True, slots=True)
class Change:
    """One field of the config, in words."""

    name: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class TrialLine:
    """One trial of it."""

    id: str
    role: str
    seed: str
    status: str
    result: str
    """Its score, or what went wrong."""
    wall_s: float
    peak_mem_gib: float | None


@dataclass(frozen=True, slots=True)
class Reply:
    """One exchange with a language model."""

    raw: str
    truncated: bool
    mode: str
    finish: str
    error: str
    verdict: str
    latency_s: float
    prompt_tokens: int | None
    completion_tokens: int | None


@dataclass(frozen=True, slots=True)
class Details:
    """All an iteration opens to. Empty texts are not shown."""

    at: str
    reason: str
    verdict: str
    decision: str
    proposer: str
    notes: tuple[str, ...]
    """What there is to say of the proposer's turn: who stood in for whom, what was overridden."""
    changes: tuple[Change, ...]
    trials: tuple[TrialLine, ...] = ()
    replies: tuple[Reply, ...] = ()
    config: str = ""
    """Hash, or what else the config goes by."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """The details of up to CHUNK iterations: base64 of the zlib stream of a JSON list."""

    data: str
    iterations: int


class DetailBook:
    """The details of every iteration, in their order, compressed as they come."""

    def __init__(self) -> None:
        self._packed: list[Chunk] = []
        self._open: list[str] = []

    def add(self, details: Details) -> None:
        """Take in one iteration's."""
        self._open.append(json.dumps(details, default=_fields, separators=(",", ":")))
        if len(self._open) == CHUNK:
            self._packed.append(_pack(self._open))
            self._open = []

    @property
    def chunks(self) -> tuple[Chunk, ...]:
        """All of them; each but the last holds CHUNK iterations."""
        last = [_pack(self._open)] if self._open else []
        return (*self._packed, *last)


def _fields(value: Any) -> dict[str, Any]:
    """The fields of one of the frozen values above; ``asdict`` would copy all that is in them
    first."""
    return {name: getattr(value, name) for name in value.__slots__}


def _pack(details: list[str]) -> Chunk:
    text = f"[{','.join(details)}]".encode()
    return Chunk(base64.b64encode(zlib.compress(text, _LEVEL)).decode("ascii"), len(details))


def details_of(
    row: IterationRow, reference: Mapping[str, Scalar], measure: Measure = BPB
) -> Details:
    """An iteration's.

    :param reference: the canonical form of the config that the proposal edits.
    :param measure: what its scores are of.
    """
    proposer, verdict = row.proposer, row.verdict
    refused = f"refused by the rail {verdict.rail or '(none named)'}: {verdict.why}"
    return Details(
        at=shown(row.at),
        reason=shown(row.proposal.reason) if row.proposal else "",
        verdict="allowed by every rail" if verdict.allowed else shown(refused),
        decision=shown(row.decision.explanation),
        proposer=shown(f"{proposer.kind} {proposer.model or ''}".strip()),
        notes=tuple(shown(note) for note in _notes(proposer)),
        changes=changes(row, reference),
        trials=tuple(_trial(trial, measure) for trial in row.trials),
        replies=tuple(_reply(attempt) for attempt in proposer.attempts),
        config=row.config_hash or "",
    )


def changes(row: IterationRow, before: Mapping[str, Scalar]) -> tuple[Change, ...]:
    """The config's difference from its reference; of a refused proposal, what it asked for."""
    asked: Mapping[str, Scalar] = row.proposal.changes if row.proposal else {}
    after = row.config.said if row.config else {**before, **asked}
    names = [*asked, *(name for name in after if name not in asked)]
    return tuple(
        Change(shown(name), cell(before.get(name)), cell(after.get(name)))
        for name in names
        if after.get(name) != before.get(name) or name in asked
    )


def cell(value: Scalar | None) -> str:
    """A config's value, or a dash."""
    return "–" if value is None else value_text(value)


def _notes(proposer: ProposerRecord) -> list[str]:
    notes = [f"took {duration_text(proposer.latency_s)}"]
    if proposer.fallback:
        notes.append(f"stood in: {proposer.fallback}")
    if proposer.overrode:
        suggested = ", ".join(f"{name}={cell(value)}" for name, value in proposer.overrode.items())
        notes.append(f"the sampler had suggested {suggested}")
    if proposer.prompt_sha256:
        notes.append(f"prompt sha256 {proposer.prompt_sha256[:12]}")
    return notes


def _trial(trial: TrialRecord, measure: Measure) -> TrialLine:
    result = trial.result
    return TrialLine(
        id=shown(trial.trial_id),
        role=trial.role,
        seed=str(trial.seed),
        status=result.status,
        result=shown(result.message)
        if isinstance(result, TrialFailed)
        else measure.text(result.objective),
        wall_s=round(trial.wall_s, 2),
        peak_mem_gib=None if result.peak_mem_gib is None else round(result.peak_mem_gib, 3),
    )


def _reply(attempt: Attempt) -> Reply:
    verdict = attempt.verdict
    said = "" if verdict is None else "allowed" if verdict.allowed else f"refused: {verdict.why}"
    return Reply(
        raw=shown(attempt.raw),
        truncated=attempt.truncated,
        mode=shown(attempt.mode),
        finish=shown(attempt.finish_reason or ""),
        error=shown(attempt.error or ""),
        verdict=shown(said),
        latency_s=round(attempt.latency_s, 3),
        prompt_tokens=attempt.prompt_tokens,
        completion_tokens=attempt.completion_tokens,
    )
