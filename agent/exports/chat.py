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
from dataclasses import asdict
from pathlib import Path
from typing import Any

from agent.exports.base import Exported, campaign_row, whole_file
from agent.proposers.llm.completions import Conversations, Message
from autoresearch.layout import JOURNAL_FILE, PROMPTS_DIR
from trajectory.journal import read_rows
from trajectory.rows import IterationRow

NO_REPLY = "exchanges brought no whole reply"
NOT_KEPT = "exchanges are without their prompt, which was not kept"
REFUSED = "replies were refused by the rails"


def export_chat(directory: Path, where: str, *, accepted_only: bool = True) -> Exported:
    """Export a model's replies.

    :param accepted_only: export replies that the rails passed, and count the others.
    """
    conversations = Conversations(directory / PROMPTS_DIR)
    left_out: Counter[str] = Counter()
    campaign_id = campaign_row(directory).id
    written = 0
    with whole_file(Path(where)) as new, new.open("w", encoding="utf-8") as file:
        for row in read_rows(directory / JOURNAL_FILE):
            if not isinstance(row, IterationRow):
                continue
            for number, before in _exchanges(row, conversations, left_out):
                attempt = row.proposer.attempts[number]
                is_allowed = attempt.verdict is not None and attempt.verdict.allowed
                if accepted_only and not is_allowed:
                    left_out[REFUSED] += 1
                    continue
                said = before[: len(before) - 2 * number] if accepted_only else before
                messages = [asdict(one) for one in (*said, Message("assistant", attempt.raw))]
                line: dict[str, Any] = {"messages": messages}
                if not accepted_only:
                    for message in messages:
                        if message["role"] == "assistant":
                            message["weight"] = 0  # every earlier one was refused
                    messages[-1]["weight"] = int(is_allowed)
                    line["metadata"] = _metadata(row, number, campaign_id)
                file.write(json.dumps(line, ensure_ascii=False) + "\n")
                written += 1
    notes = tuple(f"{count} {what}" for what, count in left_out.items())
    return Exported(written, "replies", where, notes)


def _metadata(row: IterationRow, number: int, campaign_id: str) -> dict[str, Any]:
    """Return what became of an iteration's reply."""
    record = row.proposer
    verdict = record.attempts[number].verdict
    used = record.kind == "llm" and number == len(record.attempts) - 1
    metadata = {
        "campaign_id": campaign_id,
        "iter": row.iter,
        "attempt": number + 1,
        "model": record.model,
        "allowed": verdict.allowed if verdict is not None else None,
        "rail": verdict.rail if verdict is not None else None,
        "why": verdict.why if verdict is not None else "",
        "used": used,
    }
    if used:
        decision = row.decision
        metadata |= {
            "changes": row.proposal.changes if row.proposal is not None else {},
            "overrode": record.overrode,
            "action": decision.action,
            "estimate_objective": decision.estimate_objective,
            "delta": decision.delta,
            "stderr": decision.stderr,
            "statuses": [trial.result.status for trial in row.trials],
        }
    return metadata


def _exchanges(
    row: IterationRow, conversations: Conversations, left_out: Counter[str]
) -> Iterator[tuple[int, Sequence[Message]]]:
    """Yield each complete reply: its index within the iteration, and all messages before it."""
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
        yield number, sent[:end]
