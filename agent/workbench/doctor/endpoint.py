"""Ask the language model for one proposal, as the loop does."""

from agent.settings.environment import Environment
from autoresearch.errors import AutoresearchError
from trainer.spec import Budget
from trajectory.evidence import Evidence

MENU = "cpu-tiny"
"""Menu to propose for."""


def asked(environment: Environment) -> tuple[bool, str]:
    """Return whether the endpoint makes a proposal that the loop would train, and what was found.

    :param environment: names an endpoint.
    """
    # These load slowly.
    from agent.menu.files import load_menu  # noqa: PLC0415
    from agent.menu.rails import Rails  # noqa: PLC0415
    from agent.proposers.base import Memory  # noqa: PLC0415
    from agent.proposers.llm.endpoint import Endpoint  # noqa: PLC0415
    from agent.proposers.llm.prompt import Prompter  # noqa: PLC0415
    from agent.proposers.llm.proposer import LlmProposer  # noqa: PLC0415
    from agent.proposers.llm.wire import Patience  # noqa: PLC0415

    menu, budget, timeout_s = load_menu(MENU), Budget(), environment.llm_timeout_s
    memory = Memory(menu, menu.baseline, Evidence(), iter=1, seed=0, max_changes=1)
    rails = Rails(menu, budget=budget, max_changes=1)
    try:
        # A person is waiting, so a server that fails gets the time of one request.
        patience = Patience(timeout_s=timeout_s, deadline_s=timeout_s)
        endpoint = Endpoint.of(environment, patience=patience)
        offer = LlmProposer(endpoint, rails, Prompter(budget)).propose(memory)
    except AutoresearchError as error:
        return False, str(error)
    context, reply = endpoint.context, offer.record.attempts[-1]
    length = "context length not reported" if context is None else f"context {context:,} tokens"
    found = f"{endpoint.base_url} serves {endpoint.model}, mode {reply.mode}, {length}, "
    tokens, took_s = reply.completion_tokens, reply.latency_s
    speed = f" ({tokens / took_s:.1f} tokens/s)" if tokens and took_s > 0 else ""
    return True, f"{found}a proposal in {took_s:.1f} s{speed}"
