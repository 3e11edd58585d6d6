"""Read JSONL of the published loop in which a local model changes one knob at a time.

The first line holds the baseline: ``baseline_val_bpb``, ``baseline_cfg``. Each later line is an
iteration that ended at one ``stage``; a last line summarizes the run. Iterations that trained
nothing are no runs. Every proposal is relative to the baseline. The loop's ``val_bpb`` is
cross-entropy over tokens in bits, so it is imported as bits per token.

The loop's source: github.com/manavsehgal/ai-field-notes, articles/autoresearch-agent-loop.
"""

from contextlib import suppress
from functools import partial
from typing import Any

from autoresearch.values import Frozen
from trajectory.formats.foreign import ForeignRun
from trajectory.formats.source import ForeignFile, Line, Source, Wanted

_HEADER = {"baseline_val_bpb", "baseline_cfg"}
_SCORE = "val_bpb"
_WITHOUT_A_RUN = {"blocked", "nim_error", "paused", "loop_complete"}
_DECISIONS = {"keep": "keep", "revert": "discard"}


def recognises(lines: list[Line]) -> bool:
    """Return whether a file that begins with these lines has this format."""
    for line in lines:
        with suppress(ValueError):
            names = line.json_object().keys()
            if names >= _HEADER or names >= {"iter", "stage"}:
                return True
    return False


def read(source: Source, _wanted: Wanted) -> ForeignFile:
    """Read every run of a file, and its baseline as iteration 0."""
    file = ForeignFile(format="single-knob", measure="val_bits_per_token")
    line_of: dict[int, int] = {}  # by iteration

    def run(line: Line) -> ForeignRun | None:
        found = line.json_object()
        if found.get("stage") in _WITHOUT_A_RUN:
            return None
        taken = ForeignRun.model_validate({"line": line.number} | _fields(found))
        before = line_of.setdefault(taken.iter, line.number)
        if before != line.number:
            raise ValueError(f"iteration {taken.iter} is in line {before} already")
        return taken

    for line in source.lines():
        file.take(line, partial(run, line))
    return file


class _Asked(Frozen):
    """A proposal that passed the loop's rails."""

    knob: str
    new_value: bool | int | float | str
    reason: str = ""


def _fields(found: dict[str, Any]) -> dict[str, Any]:
    if found.keys() >= _HEADER:
        score = found["baseline_val_bpb"]
        fields: dict[str, Any] = {"iter": 0, "values": found["baseline_cfg"], "is_baseline": True}
    elif found.get("stage") in {"evaluated", "eval_failed"}:
        proposal = found.get("proposal")
        if not isinstance(proposal, dict):
            raise ValueError(f"its proposal is {proposal!r:.60}, not a JSON object")
        asked = _Asked.model_validate(
            {name: proposal[name] for name in _Asked.model_fields if name in proposal}
        )
        fields = {
            "iter": found.get("iter"),
            "values": found.get("candidate_cfg"),
            "changes": {asked.knob: asked.new_value},
            "reason": asked.reason,
        }
        if found["stage"] == "eval_failed":
            return fields | {"action": "discard"}
        action = _DECISIONS.get(str(found.get("decision")))
        if action is None:
            raise ValueError(f"its decision is {found.get('decision')!r:.60}, not keep or revert")
        fields["action"], score = action, found.get(_SCORE)
    else:
        raise ValueError(f"its stage is {found.get('stage')!r:.60}, which is not known")
    if score is None:
        raise ValueError(f"it has no {_SCORE}")
    return fields | {"score": score}
