"""Check that the prompt gives a script's own scores their unit, direction and precision."""

from __future__ import annotations

from agent.menu.files import ProxyMenu, parse_menu
from agent.proposers.base import Memory
from agent.proposers.llm.prompt import Prompter
from trainer.spec import Budget
from trajectory.evidence import ConfigEvidence, Evidence

MENU = """
name = "own"
[trainer]
command = ["python3", "train.py", "--lr={{lr}}", "--seed={{seed}}"]
score = {{ pattern = 'score ([-+0-9.eE]+)' }}
unit = "{unit}"
{more}
[knobs.lr]
type = "float"
low = 0.1
high = 1.0
default = 0.5
"""


def told(unit: str, more: str, reference: float, other: float) -> tuple[str, str]:
    """Return the messages for a script that printed these scores of two configs."""
    menu: ProxyMenu = parse_menu(MENU.format(unit=unit, more=more), "own")
    objective = menu.measure.objective
    evidence = Evidence()
    known = ((0, menu.baseline, reference), (1, menu.apply(menu.baseline, {"lr": 0.25}), other))
    for number, config, score in known:
        entry = ConfigEvidence(config, config.config_hash, number, scores={0: objective(score)})
        evidence.configs[entry.config_hash] = entry
    memory = Memory(menu, menu.baseline, evidence, iter=2, seed=7, max_changes=1)
    prompt = Prompter(Budget(amount=1, unit="run")).prompt(memory)
    system, user = (message.content for message in prompt.messages)
    for word in ("bpb", "bits per byte", "token", "parameters", "minus accuracy", "held-out"):
        assert word not in system + user, word
    return system, user


def test_what_is_to_grow_is_told_as_it_was_printed() -> None:
    system, user = told("accuracy", "digits = 3", 0.75, 0.8)
    assert "accuracy that the script reports (higher is better), shown to 3 decimals" in system
    assert "in units of 0.001: above zero is better" in user
    assert "Measured 0.750 accuracy (n=1)" in user
    assert "#1 +50: lr=0.25" in user


def test_small_differences_are_told_as_fine_as_they_are_printed() -> None:
    system, user = told("squared error", "digits = 7", 0.0000512, 0.0000498)
    assert "squared error that the script reports (lower is better), shown to 7 decimals" in system
    assert "in units of 1e-06: below zero is better" in user
    assert "Measured 0.0000512 squared error" in user
    assert "#1 -1: lr=0.25" in user
    _, coarse = told("pixels", "digits = 1", 120.5, 118.2)
    assert "in units of 0.1: below zero is better" in coarse
    assert "#1 -23: lr=0.25" in coarse
