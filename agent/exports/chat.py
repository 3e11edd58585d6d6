"""Export a language model's exchanges as training data: chat messages and each reply's outcome.

By default a line is ``{"messages": [...]}`` and nothing else: the prompt and the reply that passed
the rails, without the refused replies between them. Any supervised fine-tuning can use it, whether
it reads weights or learns from every assistant message.

With all replies, a line is one reply with all messages before it. Refused replies carry ``weight``
0 and accepted ones 1, as in OpenAI's format. ``metadata`` says whether the rails passed the reply,
whether it was the proposal that was trained, and the decision, so that users can choose what to
learn from.
"""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from agent.exports.base import Exported, Subject, whole_file
from agent.proposers.llm.completions import Conversations, Message
from autoresearch.errors import FormatError
from autoresearch.layout import PROMPTS_DIR
from trajectory.proposals import Attempt
from trajectory.rows import IterationRow

NO_REPLY = "exchanges brought no whole reply"
NOT_KEPT = "exchanges are without their prompt, which was not kept"
REFUSED = "replies were refused by the rails"


def export_chat(
    subject: Subject, out: Path, *, overwrite: bool, accepted_only: bool = True
) -> Exported:
    """Export a model's replies in a campaign of this tool.

    :param accepted_only: export replies that the rails passed, and count the others.
    :raises FormatError: for another tool's campaign, which has no exchanges.
    """
    if subject.foreign is not None:
        raise FormatError(
            f"{subject.directory} was imported from another tool and has no exchanges with a "
            "model; export one of this tool's campaigns"
        )
    conversations = Conversations(subject.directory / PROMPTS_DIR)
    left_out: Counter[str] = Counter()
    campaign_id = subject.campaign().id
    written = 0
    with whole_file(out, overwrite=overwrite) as new, new.open("w", encoding="utf-8") as file:
        for row in subject.rows():
            if not isinstance(row, IterationRow):
                continue
            for exchange in _exchanges(row, conversations, left_out):
                if accepted_only and not exchange.accepted:
                    left_out[REFUSED] += 1
                    continue
                example = exchange.accepted_line() if accepted_only else exchange.line(campaign_id)
                file.write(json.dumps(example, ensure_ascii=False) + "\n")
                written += 1
    notes = tuple(f"{count} {what}" for what, count in left_out.items())
    return Exported(written, "replies", str(out), notes)


@dataclass(frozen=True, slots=True)
class _Exchange:
    """One complete reply."""

    row: IterationRow
    number: int
    """Index of the reply within its iteration, from 0."""
    before: Sequence[Message]
    """All messages sent before the reply."""

    @property
    def attempt(self) -> Attempt:
        return self.row.proposer.attempts[self.number]

    @property
    def accepted(self) -> bool:
        verdict = self.attempt.verdict
        return verdict is not None and verdict.allowed

    def accepted_line(self) -> dict[str, Any]:
        prompt = self.before[: len(self.before) - 2 * self.number]
        messages = [*prompt, Message("assistant", self.attempt.raw)]
        return {"messages": [asdict(message) for message in messages]}

    def line(self, campaign_id: str) -> dict[str, Any]:
        record, verdict = self.row.proposer, self.attempt.verdict
        used = record.kind == "llm" and self.number == len(record.attempts) - 1
        # Every earlier assistant message was refused.
        said = [_weighed(message, 0) for message in self.before]
        own = _weighed(Message("assistant", self.attempt.raw), int(self.accepted))
        metadata = {
            "campaign_id": campaign_id,
            "iter": self.row.iter,
            "attempt": self.number + 1,
            "model": record.model,
            "allowed": verdict.allowed if verdict is not None else None,
            "rail": verdict.rail if verdict is not None else None,
            "why": verdict.why if verdict is not None else "",
            "used": used,
        }
        if used:
            decision = self.row.decision
            metadata |= {
                "changes": self.row.proposal.changes if self.row.proposal is not None else {},
                "overrode": record.overrode,
                "action": decision.action,
                "estimate_objective": decision.estimate_objective,
                "delta": decision.delta,
                "stderr": decision.stderr,
                "statuses": [trial.result.status for trial in self.row.trials],
            }
        return {"messages": [*said, own], "metadata": metadata}


def _weighed(message: Message, weight: int) -> dict[str, Any]:
    """Return a message with its weight, which only assistant messages have."""
    weighed = {"weight": weight} if message.role == "assistant" else {}
    return {**asdict(message), **weighed}


def _exchanges(
    row: IterationRow, conversations: Conversations, left_out: Counter[str]
) -> Iterator[_Exchange]:
    record = row.proposer
    if not record.attempts:
        return
    sent = (conversations.read(record.prompt_sha256) if record.prompt_sha256 else None) or []
    first = next((i for i, message in enumerate(sent) if message.role == "user"), len(sent)) + 1
    for number, attempt in enumerate(record.attempts):
        if attempt.error is not None or attempt.truncated or not attempt.raw:
            left_out[NO_REPLY] += 1
            continue
        end = first + 2 * number  # each refusal added two messages
        if end > len(sent):
            left_out[NOT_KEPT] += 1
            continue
        yield _Exchange(row, number, sent[:end])
