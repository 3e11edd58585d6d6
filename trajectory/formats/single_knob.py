"""Read JSONL of the published loop in which a local model changes one knob at a time.

The first line holds the baseline: ``baseline_val_bpb``, ``baseline_cfg``, ``accept_delta_frac``.
Each later line is an iteration that ended at one ``stage``; a last line summarizes the run. Every
proposal is relative to the baseline. The loop's ``val_bpb`` is cross-entropy over tokens in bits,
so it is imported as bits per token.

The loop's source: github.com/manavsehgal/ai-field-notes, articles/autoresearch-agent-loop.
"""

from contextlib import suppress
from functools import partial
from typing import Annotated, Any, Final

from pydantic import Field

from autoresearch.values import Finite, Frozen
from trajectory.formats.foreign import ForeignRun
from trajectory.formats.source import ForeignFile, Line, Source

FORMAT: Final = "single-knob"
_HEADER = {"baseline_val_bpb", "baseline_cfg"}
_SCORE = "val_bpb"
_ABOUT_THE_RUN = ("nim_latency_s", "iter_wall_s")


def recognises(lines: list[Line]) -> bool:
    """Return whether a file that begins with these lines has this format."""
    for line in lines:
        with suppress(ValueError):
            names = line.json_object().keys()
            if names >= _HEADER or names >= {"iter", "stage"}:
                return True
    return False


def read(source: Source) -> ForeignFile:
    """Read every iteration of a file, and its baseline as iteration 0."""
    file = ForeignFile(format=FORMAT, measure="val_bits_per_token")
    line_of: dict[int, int] = {}  # by iteration

    def run(line: Line) -> ForeignRun | None:
        found = line.json_object()
        if found.get("stage") == "loop_complete":
            return None  # a summary of the other lines
        if found.keys() >= _HEADER:
            header = _Header.model_validate({"accept_delta_frac": found.get("accept_delta_frac")})
            taken = ForeignRun.model_validate(
                {
                    "line": line.number,
                    "iter": 0,
                    "values": found["baseline_cfg"],
                    "is_baseline": True,
                    "status": "measured",
                    "score": found["baseline_val_bpb"],
                }
            )
            if 0 not in line_of:  # otherwise this line repeats iteration 0 and is skipped
                file.accept_delta_frac = header.accept_delta_frac
        else:
            taken = _iteration(line, found)
        if taken.status != "paused":
            before = line_of.setdefault(taken.iter, line.number)
            if before != line.number:
                raise ValueError(f"iteration {taken.iter} is in line {before} already")
        return taken

    for line in source.lines():
        file.take(line, partial(run, line))
    return file


_STATUS = {
    "evaluated": "measured",
    "blocked": "refused",
    "eval_failed": "failed",
    "nim_error": "no proposal",
    "paused": "paused",
}
"""Each stage's status."""
_DECISIONS = {"keep": "keep", "revert": "discard"}


def _iteration(line: Line, found: dict[str, Any]) -> ForeignRun:
    stage = found.get("stage")
    if not isinstance(stage, str) or stage not in _STATUS:
        raise ValueError(f"its stage is {stage!r:.60}, which is not one of {', '.join(_STATUS)}")
    metrics = {} if found.get("eval_metrics") is None else found["eval_metrics"]
    if not isinstance(metrics, dict):
        raise ValueError(f"its eval_metrics are {metrics!r:.60}, not a JSON object")  # noqa: TRY004
    about = {name: found[name] for name in _ABOUT_THE_RUN if name in found}
    fields: dict[str, Any] = {
        "line": line.number,
        "iter": found.get("iter"),
        "at": found.get("ts"),
        "values": found.get("candidate_cfg"),
        # Its val_bpb is already the score, and is not in bits per byte.
        "metrics": {name: value for name, value in metrics.items() if name != _SCORE} | about,
        "status": _STATUS[stage],
    }
    why = found.get("reason")
    if stage == "evaluated":
        action = _DECISIONS.get(str(found.get("decision")))
        if action is None:
            raise ValueError(f"its decision is {found.get('decision')!r:.60}, not keep or revert")
        fields |= _asked(found) | {"score": found.get(_SCORE), "action": action}
        why = None
    elif stage == "eval_failed":
        fields |= _asked(found) | {"action": "discard"}
        why = fields["metrics"].get("error") or why
    else:
        fields["values"] = None
    if stage == "blocked":
        fields["rail"] = found.get("rail")
        with suppress(ValueError):  # it may name no knob and no value
            fields |= _asked(found)
    elif stage == "nim_error":
        why = found.get("nim_error") or why
    return ForeignRun.model_validate(fields | {"why": "" if why is None else str(why)})


class _Header(Frozen):
    accept_delta_frac: Annotated[Finite, Field(strict=True)] | None


class _Asked(Frozen):
    """A proposal that passed the loop's rails."""

    knob: str
    new_value: bool | int | float | str
    reason: str = ""


def _asked(found: dict[str, Any]) -> dict[str, Any]:
    proposal = found.get("proposal")
    if not isinstance(proposal, dict):
        raise ValueError(f"its proposal is {proposal!r:.60}, not a JSON object")  # noqa: TRY004
    named = {name: proposal[name] for name in _Asked.model_fields if name in proposal}
    asked = _Asked.model_validate(named)
    return {"changes": {asked.knob: asked.new_value}, "reason": asked.reason}
