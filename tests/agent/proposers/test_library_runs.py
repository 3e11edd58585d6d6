"""Run every published idea through the rails that execute code, without their timing."""

from __future__ import annotations

import pytest

from agent.menu.files import load_menu
from agent.proposers.code import changes_for, ideas
from tests.support.memories import fresh_memory
from trainer.code_check import checks

MENU = load_menu("cpu-tiny-code")


@pytest.mark.slow
def test_the_rails_that_run_code_pass_every_idea(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "prices", lambda _: (1.0, 1.0))
    memory, refused = fresh_memory(MENU), {}
    for idea in ideas():
        config = MENU.apply(MENU.baseline, changes_for(idea, memory))
        if why := checks.verdict_on(config, 2.0).why:
            refused[idea.name] = why
    assert not refused
