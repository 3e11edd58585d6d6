"""Export a campaign as a table, as rows, as MLflow runs or as chat data."""

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from agent.proposers.llm.completions import Conversations, Message
from agent.search.campaign_start import read_campaign_row
from autoresearch.errors import FormatError
from autoresearch.files import replacing
from autoresearch.layout import JOURNAL_FILE
from trainer.schema import CurvePoint
from trajectory.curves import read_curve
from trajectory.formats.mlflow_runs import write_trials
from trajectory.formats.table import trials_table, write_csv, write_parquet
from trajectory.formats.tracked import tracked_trials
from trajectory.history.tables import hidden
from trajectory.journal import read_records, read_rows
from trajectory.rows import CampaignRow, IterationRow

_SCHEME = re.compile(r"[a-z][a-z0-9+.-]+:")


@dataclass(frozen=True, slots=True)
class Exported:
    """Count and place of what was written."""

    count: int
    of: str
    """Noun for what is counted: ``trials``."""
    where: str
    notes: tuple[str, ...] = ()
    """Names of what was left out, and the reasons."""


def campaign_row(directory: Path) -> CampaignRow:
    """Return the first row of the campaign to export.

    :raises FormatError: if the journal is empty.
    """
    row = read_campaign_row(directory)
    if row is None:
        raise FormatError(f"{directory / JOURNAL_FILE} is empty; there is nothing to export")
    return row


def study_name(directory: Path) -> str:
    """Return the name of a campaign's study or experiment, which no other campaign has."""
    return f"{directory.resolve().name} {campaign_row(directory).id}"


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Yield a temporary file beside ``path`` that takes its place if the block succeeds.

    :raises FormatError: if ``path`` exists or cannot be written.
    """
    if _SCHEME.match(str(path)) or path.exists():
        raise FormatError(
            f"{path} exists already or is not a file's path; choose another --out, remove it, or "
            "for a database write sqlite:///PATH"
        )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as file:
            yield Path(file.name)
    except OSError as error:
        raise FormatError(
            f"{path} cannot be written: {error.strerror or error}; free some space, or choose "
            "another place with --out"
        ) from error


@contextmanager
def whole_database(where: str) -> Iterator[str]:
    """Yield a new SQLite file that becomes ``where`` if the block succeeds.

    An existing file, or whatever a URL names, is extended in place.

    :raises FormatError: as :func:`whole_file`.
    """
    if "://" in where or Path(where).is_file():
        yield where
        return
    with whole_file(Path(where)) as new:
        try:
            yield str(new)
        except FormatError as error:
            raise FormatError(str(error).replace(str(new), where)) from error


def export_csv(directory: Path, where: str) -> Exported:
    """Write one line per trial as CSV."""
    table = trials_table(read_rows(directory / JOURNAL_FILE))
    with whole_file(Path(where)) as new, new.open("w", encoding="utf-8", newline="") as file:
        return Exported(write_csv(table, file), "lines", where)


def export_parquet(directory: Path, where: str) -> Exported:
    """Write the same table, typed, as Parquet."""
    table = trials_table(read_rows(directory / JOURNAL_FILE))
    with whole_file(Path(where)) as new:
        return Exported(write_parquet(table, new), "lines", where)


def export_jsonl(directory: Path, where: str) -> Exported:
    """Write the rows as stored; import rebuilds the same campaign from them."""
    count = 0
    with whole_file(Path(where)) as new, new.open("wb") as file:
        for record in read_records(directory / JOURNAL_FILE):
            file.write(record.raw.removesuffix(b"\n") + b"\n")
            count += 1
    return Exported(count, "rows", where)


def export_mlflow(directory: Path, where: str) -> Exported:
    """Write one run per trial with its curve, in an experiment named after the campaign."""
    if where.startswith("file:") and "://" not in where:  # the form in MLflow's documentation
        where = Path(where.removeprefix("file:")).absolute().as_uri()
    without: list[str] = []

    def curve(trial_id: str) -> list[CurvePoint]:
        points = read_curve(directory, trial_id)
        if not points:
            without.append(trial_id)
        return points

    with whole_database(where) as place:
        rows = tracked_trials(read_rows(directory / JOURNAL_FILE))
        count = write_trials(place, study_name(directory), rows, curve)
    notes = (f"{len(without)} trials have no curve on disk",) if without else ()
    return Exported(count, "runs", hidden(where), notes)


NO_REPLY = "exchanges brought no whole reply"
NOT_KEPT = "exchanges are without their prompt, which was not kept"
REFUSED = "replies were refused by the rails"


def export_chat(directory: Path, where: str, *, accepted_only: bool = True) -> Exported:
    """Export a language model's exchanges as training data: chat messages and each reply's outcome.

    By default a line is ``{"messages": [...]}`` and nothing else: the prompt and the reply that
    passed the rails, without the refused replies between them. Any supervised fine-tuning can use
    it, whether it reads weights or learns from every assistant message.

    With all replies, a line is one reply with all messages before it. Refused replies carry
    ``weight`` 0 and accepted ones 1, as in OpenAI's format. ``metadata`` says whether the rails
    passed the reply, whether it was the proposal that was trained, and the decision, so that users
    can choose what to learn from.

    :param accepted_only: export replies that the rails passed, and count the others.
    """
    conversations = Conversations(directory)
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
