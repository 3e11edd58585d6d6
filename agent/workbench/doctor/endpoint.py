"""Ask the language model for one small proposal, as the loop would."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from agent.settings.environment import Environment
from autoresearch.domains.ranges import RealRange
from autoresearch.errors import AutoresearchError

if TYPE_CHECKING:
    from agent.proposers.llm.completions import Reply

SIGN_OF_LIFE_S = 5.0
"""Seconds to wait for a sign of life, since a person is waiting."""
MIN_CONTEXT = 2048
"""Tokens. They hold a shipped menu, the reference and a few results."""

SYSTEM = "You propose configs for training small language models, in JSON."
QUESTION = (
    "The learning rate of a small language model is lr=0.001, in a range from 0.0001 to 0.01. "
    "Propose another value. Answer with one JSON object and nothing else, of this form: "
    '{"reason": "one short sentence", "changes": [{"knob": "lr", "value": 0.003}]}'
)
LR = RealRange(low=0.0001, high=0.01, scale="log")
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "reason": {"type": "string", "maxLength": 120},
        "changes": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "knob": {"type": "string", "enum": ["lr"]},
                    "value": {"type": "number"},
                },
                "required": ["knob", "value"],
                "additionalProperties": False,
            },
            "minItems": 1,
            "maxItems": 1,
        },
    },
    "required": ["reason", "changes"],
    "additionalProperties": False,
}


def asked(environment: Environment) -> tuple[bool, str]:
    """Return whether the endpoint answered one question as the loop needs it, and what was found.

    :param environment: names an endpoint.
    """
    from agent.proposers.llm.completions import Message  # noqa: PLC0415 (slow to load)
    from agent.proposers.llm.endpoint import Endpoint  # noqa: PLC0415 (slow to load)
    from agent.proposers.llm.patience import Patience  # noqa: PLC0415

    try:
        # Whether a server listens is known at once; a slow model may take long for a whole answer.
        patience = Patience(timeout_s=SIGN_OF_LIFE_S, deadline_s=SIGN_OF_LIFE_S)
        there = Endpoint.of(environment, patience=patience)
        context, model = there.context, there.model
        timeout_s = environment.llm_timeout_s
        asking = Patience(timeout_s=timeout_s, deadline_s=timeout_s)
        endpoint = Endpoint.of(environment, patience=asking)
        mode = endpoint.schema_mode
        began = time.monotonic()
        chat = [Message("system", SYSTEM), Message("user", QUESTION)]
        reply = endpoint.ask(chat, SCHEMA)
        took_s = time.monotonic() - began
    except AutoresearchError as error:
        return False, f"{error}"
    length = "context length not reported" if context is None else f"context {context:,} tokens"
    found = f"{endpoint.base_url} serves {model}, mode {mode}, {length}, "
    wrong = _wrong_with(reply, context)
    if wrong is not None:
        return False, f"{found}answered in {took_s:.1f} s: {wrong}"
    tokens = reply.completion_tokens
    speed = f" ({tokens / took_s:.1f} tokens/s)" if tokens and took_s > 0 else ""
    return True, f"{found}a proposal in {took_s:.1f} s{speed}"


def _wrong_with(reply: Reply, context: int | None) -> str | None:
    from agent.menu.replies import read_reply  # noqa: PLC0415
    from agent.menu.reply_objects import ReplyError  # noqa: PLC0415

    if reply.error is not None:
        return f"{reply.error}; the sampler would propose instead"
    why: object = None
    try:
        changes = read_reply(reply.text).coerced({"lr": LR}).changes
        outside = f"{', '.join(changes)} is not the one knob, lr"
        why = LR.why_not(changes["lr"]) if changes.keys() == {"lr"} else outside
    except ReplyError as error:
        why = error
    if why is not None:
        return f"{why}; the loop would show the model this error, then let the sampler propose"
    if context is not None and context < MIN_CONTEXT:
        return f"its context is too short for a proposal; start it with {MIN_CONTEXT:,} or more"
    return None
