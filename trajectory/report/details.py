"""Details of iterations for the page: texts and trials, packed so that ten thousand fit.

The texts come from others (a language model, another tool), so they travel as data and never as
markup: as JSON, deflated, in base64. When a reader opens a row, the page's script unpacks them and
inserts them as text nodes. Invisible characters are spelled out in every text.
"""

import base64
import json
import zlib
from collections.abc import Mapping
from typing import Any

from autoresearch.values import Scalar
from autoresearch.words import CODE, duration_text
from trainer.schema import BPB, Measure, Measured, TrialFailed, code_diffs
from trajectory.proposals import Attempt
from trajectory.report.wording import shown, value_text
from trajectory.rows import IterationRow, TrialRecord

CHUNK = 100
"""Iterations packed together: opening one of them unpacks them all."""
HASH_SHOWN = 12
"""Digits of a config's hash that the page has, since hashes do not compress. In 99.99998 % of
campaigns no two of ten thousand configs begin alike."""
_LEVEL = 6


class DetailBook:
    """The details of every iteration, in order, compressed as they are added."""

    def __init__(self) -> None:
        self._packed: list[str] = []
        self._open: list[str] = []

    def add(self, details: Mapping[str, Any]) -> None:
        """Add one iteration's details."""
        self._open.append(_ENCODER.encode(details))
        if len(self._open) == CHUNK:
            self._packed.append(_pack(self._open))
            self._open = []

    @property
    def chunks(self) -> tuple[str, ...]:
        """All chunks, each the base64 of the zlib stream of a JSON list; each but the last holds
        CHUNK iterations."""
        last = [_pack(self._open)] if self._open else []
        return (*self._packed, *last)


_ENCODER = json.JSONEncoder(separators=(",", ":"))


def _pack(details: list[str]) -> str:
    text = f"[{','.join(details)}]".encode()
    return base64.b64encode(zlib.compress(text, _LEVEL)).decode("ascii")


def details_of(
    row: IterationRow, reference: Mapping[str, Scalar], measure: Measure = BPB
) -> dict[str, Any]:
    """Return an iteration's details; the page does not show empty texts.

    :param reference: canonical form of the config that the proposal edits.
    :param measure: unit and direction of its scores.
    """
    proposer, verdict = row.proposer, row.verdict
    refused = f"refused by the rail {verdict.rail or '(none named)'}: {verdict.why}"
    notes = [f"took {duration_text(proposer.latency_s)}"]
    if proposer.fallback:
        notes.append(f"stood in: {proposer.fallback}")
    if proposer.overrode:
        suggested = ", ".join(f"{name}={cell(value)}" for name, value in proposer.overrode.items())
        notes.append(f"the sampler had suggested {suggested}")
    if proposer.prompt_sha256:
        notes.append(f"prompt sha256 {proposer.prompt_sha256[:12]}")
    return {
        "at": shown(row.at),
        "reason": shown(row.proposal.reason) if row.proposal else "",
        "verdict": "allowed by every rail" if verdict.allowed else shown(refused),
        "decision": shown(row.decision.explanation),
        "proposer": shown(f"{proposer.name} {proposer.model or ''}".strip()),
        "notes": tuple(map(shown, notes)),
        "changes": changes(row, reference),
        "trials": tuple(_trial(trial, measure) for trial in row.trials),
        "replies": tuple(_reply(attempt) for attempt in proposer.attempts),
        "config": (row.config_hash or "")[:HASH_SHOWN],
    }


def changes(row: IterationRow, before: Mapping[str, Scalar]) -> list[dict[str, str]]:
    """Return the config's differences from its reference; for a refused proposal, the changes that
    it asked for."""
    asked: Mapping[str, Scalar] = row.proposal.changes if row.proposal else {}
    after = row.config.said if row.config else {**before, **asked}
    others = (name for name, value in after.items() if value != before.get(name))
    changed = [*dict.fromkeys([*asked, *others])]
    has_code = row.config is not None and any(name.startswith(CODE) for name in changed)
    diffs = code_diffs(row.config, before) if row.config and has_code else {}
    return [
        {"name": shown(name), "before": "", "after": shown("\n".join(diffs[name]))}
        if name in diffs
        else {"name": shown(name), "before": cell(before.get(name)), "after": cell(after.get(name))}
        for name in changed
    ]


def cell(value: Scalar | None) -> str:
    """Return a config's value as text, or a dash for None."""
    return "–" if value is None else value_text(value)


def _trial(trial: TrialRecord, measure: Measure) -> dict[str, Any]:
    result = trial.result
    return {
        "id": shown(trial.trial_id),
        "role": trial.role,
        "seed": str(trial.seed),
        "status": result.status,
        "result": shown(result.message)
        if isinstance(result, TrialFailed)
        else measure.text(result.objective),
        "wall_s": round(trial.wall_s, 2),
        "peak_mem_gib": None if result.peak_mem_gib is None else round(result.peak_mem_gib, 3),
        "peak_gpu_mem_gib": _gpu_gib(result),
    }


def _gpu_gib(result: Measured | TrialFailed) -> float | None:
    found = result.peak_gpu_mem_gib
    return None if found is None else round(found, 3)


def _reply(attempt: Attempt) -> dict[str, Any]:
    verdict = attempt.verdict
    said = "" if verdict is None else "allowed" if verdict.allowed else f"refused: {verdict.why}"
    return {
        "raw": shown(attempt.raw),
        "truncated": attempt.truncated,
        "mode": shown(attempt.mode),
        "finish": shown(attempt.finish_reason or ""),
        "error": shown(attempt.error or ""),
        "verdict": shown(said),
        "latency_s": round(attempt.latency_s, 3),
        "prompt_tokens": attempt.prompt_tokens,
        "completion_tokens": attempt.completion_tokens,
    }
