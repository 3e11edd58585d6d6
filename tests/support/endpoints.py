"""Provide an endpoint and a model at a test's own server, and a question for it."""

from typing import Any

from agent.menu.rails import Rails
from agent.proposers.llm.completions import Conversations, Message
from agent.proposers.llm.endpoint import Endpoint
from agent.proposers.llm.prompt import Prompter
from agent.proposers.llm.proposer import LlmProposer
from agent.proposers.llm.wire import Patience
from tests.support.memories import RAILS
from tests.support.openai_server import OpenAIServer
from trainer.schema import Budget

KEY = "sk-very-secret-0123456789"
QUICK = Patience(timeout_s=120, deadline_s=120, wait=lambda _: 0.01)
CHAT = [Message("system", "be brief"), Message("user", "propose")]
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
ANSWER = '{"a": 1}'


def endpoint_at(server: OpenAIServer, **options: Any) -> Endpoint:
    return Endpoint(server.url, **{"api_key": KEY, "patience": QUICK, **options})


def model_at(
    server: OpenAIServer, rails: Rails = RAILS, kept: Conversations | None = None, **prompts: Any
) -> LlmProposer:
    endpoint = endpoint_at(server, model="tiny")
    return LlmProposer(endpoint, rails, Prompter(Budget(), **prompts), kept)
