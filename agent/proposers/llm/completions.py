"""What goes to a chat endpoint, and what came back, read from its raw bytes.

Local servers deviate from the protocol in small ways, so only what is needed is read, and whatever
is not there makes the reply unusable rather than raising.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, BeforeValidator, Field, ValidationError


@dataclass(frozen=True, slots=True)
class Message:
    """One chat turn."""

    role: Literal["system", "user", "assistant"]
    content: str


@dataclass(frozen=True, slots=True)
class Reply:
    """One reply. Where ``error`` is set it is no answer, though ``text`` shows what there was."""

    text: str
    mode: str
    latency_s: float
    error: str | None = None
    """One sentence."""
    finish_reason: str | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    thinks: bool = False
    """Whether the model thought aloud before it answered, or instead."""


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A model that a server lists."""

    id: str
    context: int | None
    """How many tokens a question and its reply may be together, where the server says so."""


class _Usage(BaseModel):
    prompt_tokens: Annotated[int, Field(ge=0)] | None = None
    completion_tokens: Annotated[int, Field(ge=0)] | None = None


class _Message(BaseModel):
    content: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[Any] | None = None


class _Choice(BaseModel):
    message: _Message
    finish_reason: str | None = None


class _Completion(BaseModel):
    choices: Annotated[list[_Choice], Field(min_length=1)]
    usage: _Usage | None = None


def _tokens(told: object) -> object:
    return told if isinstance(told, int) and told > 0 else None


def _table(told: object) -> object:
    return told if isinstance(told, dict) else {}


_Tokens: TypeAlias = Annotated[int | None, BeforeValidator(_tokens)]
"""A length that a server tells of itself, where it makes sense."""


class _Meta(BaseModel):
    n_ctx: _Tokens = None
    n_ctx_train: _Tokens = None


class _Model(BaseModel):
    """With the names by which servers tell the context's length."""

    id: str
    meta: Annotated[_Meta, BeforeValidator(_table)] = _Meta()
    """llama.cpp's server: what it was started with, and what the model was trained for."""
    max_model_len: _Tokens = None
    """vLLM, and so NIM."""
    context_length: _Tokens = None
    context_window: _Tokens = None

    @property
    def context(self) -> int | None:
        told = (self.meta.n_ctx, self.max_model_len, self.context_length, self.context_window)
        return next((tokens for tokens in told if tokens is not None), self.meta.n_ctx_train)


class _Models(BaseModel):
    data: list[_Model]


def read_completion(
    body: bytes, mode: str, latency_s: float, redact: Callable[[str], str]
) -> Reply:
    """The reply in the body of a ``/chat/completions`` response.

    :param redact: takes secrets out of whatever text is kept.
    """
    try:
        completion = _Completion.model_validate_json(body)
    except ValidationError:
        shown = redact(body.decode("utf-8", "replace"))
        return Reply(shown, mode, latency_s, "the reply is not a chat completion")
    choice, usage = completion.choices[0], completion.usage or _Usage()
    message = choice.message
    content = message.content or ""
    # Where a server sorts all of a model's output into its thoughts, the answer is in there.
    text = content if content.strip() else message.reasoning_content or ""
    error = None
    if choice.finish_reason == "length":
        error = "the reply was cut off at the token limit"
    elif not content.strip() and message.tool_calls:
        error = "the reply is a tool call and there are no tools"
    elif not text.strip():
        error = "the reply is empty"
    return Reply(
        redact(text),
        mode,
        latency_s,
        error,
        choice.finish_reason,
        usage.prompt_tokens,
        usage.completion_tokens,
        thinks=bool(message.reasoning_content) or content.lstrip().startswith("<think>"),
    )


def read_models(body: bytes) -> list[ServedModel]:
    """What the body of a ``/models`` response lists; empty where it lists nothing."""
    try:
        models = _Models.model_validate_json(body).data
    except ValidationError:
        return []
    return [ServedModel(model.id, model.context) for model in models]
