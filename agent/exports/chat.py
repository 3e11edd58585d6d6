"""A language model's exchanges as training data: chat messages, and what became of each reply.

A line is one reply with all that was said before it. Its ``metadata`` says whether the rails passed
it, whether it was the proposal that was trained, and what came of that, so that whoever trains on
it chooses what to learn from.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from agent.exports.base import Exported, Subject, whole_file
from agent.proposers.completions import Message
from agent.proposers.conversations import CONVERSATIONS_DIR, Conversations
from trajectory.errors import FormatError
from trajectory.rows import Attempt, IterationRow

NO_REPLY = "exchanges brought no whole reply"
NOT_KEPT = "exchanges are without their prompt, which was not kept"


def export_chat(subject: Subject, out: Path, *, overwrite: bool) -> Exported:
    """Every reply of a model in one of our campaigns.

    :raises FormatError: for another tool's campaign, which has no exchanges.
    """
    if subject.foreign is not None:
        raise FormatError(
            f"{subject.directory} was imported from another tool and has no exchanges with a "
            "model; export one of this tool's campaigns"
        )
    conversations = Conversations(subject.directory / CONVERSATIONS_DIR)
    left_out: Counter[str] = Counter()
    campaign_id = subject.campaign().id
    written = 0
    with whole_file(out, overwrite=overwrite) as new, new.open("w", encoding="utf-8") as file:
        for row in subject.rows():
            if not isinstance(row, IterationRow):
                continue
            for example in _examples(row, campaign_id, conversations, left_out):
                file.write(json.dumps(example, ensure_ascii=False) + "\n")
                written += 1
    notes = tuple(f"{count} {what}" for what, count in left_out.items())
    return Exported(written, "replies", str(out), notes)


def _examples(
    row: IterationRow, campaign_id: str, conversations: Conversations, left_out: Counter[str]
) -> Iterator[dict[str, Any]]:
    record = row.proposer
    if not record.attempts:
        return
    sent = conversations.read(record.prompt_sha256) if record.prompt_sha256 else None
    for number, attempt in enumerate(record.attempts):
        if attempt.error is not None or attempt.truncated or not attempt.raw:
            left_out[NO_REPLY] += 1
            continue
        before = None if sent is None else _before(sent, number)
        if before is None:
            left_out[NOT_KEPT] += 1
            continue
        messages = [*before, Message("assistant", attempt.raw)]
        is_last = number == len(record.attempts) - 1
        used = record.kind == "llm" and is_last
        yield {
            "messages": [asdict(message) for message in messages],
            "metadata": {
                "campaign_id": campaign_id,
                "iter": row.iter,
                "attempt": number + 1,
                "model": record.model,
                **_verdict(attempt),
                "used": used,
                **(_outcome(row) if used else {}),
            },
        }


def _before(sent: Sequence[Message], number: int) -> Sequence[Message] | None:
    """What had been said when the ``number``-th reply came: each refusal added two messages."""
    first = next((i for i, message in enumerate(sent) if message.role == "user"), len(sent)) + 1
    end = first + 2 * number
    return sent[:end] if end <= len(sent) else None


def _verdict(attempt: Attempt) -> dict[str, Any]:
    verdict = attempt.verdict
    return {
        "allowed": verdict.allowed if verdict is not None else None,
        "rail": verdict.rail if verdict is not None else None,
        "why": verdict.why if verdict is not None else "",
    }


def _outcome(row: IterationRow) -> dict[str, Any]:
    """What its proposal was worth, in bits per byte."""
    decision = row.decision
    return {
        "changes": row.proposal.changes if row.proposal is not None else {},
        "overrode": row.proposer.overrode,
        "action": decision.action,
        "estimate_bpb": decision.estimate_bpb,
        "delta_bpb": decision.delta,
        "stderr_bpb": decision.stderr,
        "statuses": [trial.result.status for trial in row.trials],
    }
