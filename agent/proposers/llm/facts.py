"""Collect the facts of a prompt: what is measured and how, what is in flight, and, for one function
to write, its contract, the function in use and every variant tried."""

import json
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from agent.judge import kept_when
from agent.menu.replies import read_code_reply
from agent.menu.reply_objects import ReplyError
from agent.proposers.base import Memory
from agent.proposers.llm.config_lines import FAILED, ConfigLines, quoted
from agent.proposers.llm.reply_form import ASKED_REASON_CHARACTERS
from agent.proposers.surrogate.promise import provable
from autoresearch.words import changes_text
from trainer.spec import AnyConfig
from trajectory.evidence import ConfigEvidence

SHOWN_PENDING = 16
"""Most configs in flight to show, the latest."""


def in_flight(memory: Memory) -> Iterator[str]:
    """Yield the configs now in training, each as its difference from the reference."""
    now = memory.menu.knob_values(memory.reference)
    for config in memory.pending[-SHOWN_PENDING:]:
        values = memory.menu.knob_values(config)
        changes = {name: value for name, value in values.items() if value != now[name]}
        yield changes_text(changes) or "as the reference"


def on_scores(memory: Memory) -> dict[str, Any]:
    """Return what a score is, how noisy it is, and what is kept. ``own`` is the name of a command's
    score."""
    menu, measure, sigma = memory.menu, memory.menu.measure, memory.evidence.sigma
    noise = None
    if sigma is not None:
        difference = 1.96 * 2**0.5 * sigma
        noise = {"sigma": sigma, "difference": difference, "provable": provable(memory)}
    return {
        "own": None if menu.trainer is None else measure.name,
        "measure": measure.model_dump(mode="json")
        | {"better": measure.better, "parts": measure.parts},
        "noise": noise,
        "kept_when": kept_when(memory.rules) if memory.rules else None,
        "max_reason": ASKED_REASON_CHARACTERS,
    }


def point_of(memory: Memory, config: AnyConfig) -> dict[str, Any]:
    """Return a config as the prompt shows it: its mean is an objective, None if unmeasured."""
    entry = memory.evidence.configs.get(config.config_hash)
    values = {name: one for name, one in memory.menu.knob_values(config).items() if one != ""}
    point = {"values": changes_text(values), "mean": None, "n": 0}
    if entry is None or not entry.scores:
        return point
    score = memory.menu.measure.text(entry.mean)
    return {**point, "mean": entry.mean, "score": score, "n": entry.n, "params": entry.params}


def contract(memory: Memory, name: str) -> dict[str, Any]:
    """Return what a code knob asks for, and the function that the reference uses."""
    knob = memory.menu.code_knobs[name]
    return {
        "name": name,
        "signature": knob.signature,
        "doc": " ".join(knob.contract.split()),
        "limits": knob.limits,
        "code": memory.menu.knob_value(memory.reference, name) or knob.built_in(memory.reference),
    }


def code_example(memory: Memory, name: str) -> str:
    """Return the form of a reply, with nothing in it that could be trained."""
    code = f"{memory.menu.code_knobs[name].signature}:\n    return …"
    return json.dumps({"reason": "…", "code": code}, ensure_ascii=False)


def variants(memory: Memory, name: str) -> Iterator[str]:
    """Yield a block per function tried for a code knob: its result beside the reference, or the
    rail that refused it. The best come first, then failures, then the latest refusals."""
    now = memory.menu.knob_value(memory.reference, name)
    tried: dict[str, ConfigEvidence] = {}
    entries = memory.evidence.configs.values()
    # Of several configs with one function, the one nearest to the reference says most about it.
    for entry in sorted(entries, key=lambda one: -_distance(memory, one)):
        source = str(memory.menu.knob_value(entry.config, name))
        if source != now and (entry.scores or entry.failures):
            tried[source] = entry
    lines = ConfigLines.of(memory)
    ranked = sorted(tried.items(), key=lambda pair: pair[1].mean if pair[1].scores else 1e300)
    for source, entry in ranked:
        shown = source or memory.menu.code_knobs[name].built_in(memory.reference) or "(built in)"
        more, against = _distance(memory, entry) - 1, lines.against(entry)
        beside = f", with {more} other knobs changed" if more else ""
        result = "no result"
        if against is not None:
            kept = ", kept" if entry.action == "keep" else ""
            result = f"{against.text(memory.menu.measure)}{kept}"
        elif entry.failures:
            failed = entry.failures[-1]
            result = f"{FAILED.get(failed.status, failed.status)} {quoted(failed.message)}"
        yield f"{result}{beside}:\n{shown}"
    for refused in reversed(memory.evidence.refused_code):
        if name in refused.why:
            said = refused.said
            with suppress(ReplyError):
                said, _ = read_code_reply(said)
            yield f"refused, because {quoted(refused.why)}:\n{said}"


def _distance(memory: Memory, entry: ConfigEvidence) -> int:
    there, here = (memory.menu.knob_values(one) for one in (entry.config, memory.reference))
    return sum(there[knob] != value for knob, value in here.items())
