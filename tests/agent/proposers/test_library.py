import json
import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.nn import functional

from agent.menu.files import load_menu
from agent.menu.rails import Rails
from agent.proposers.code import LibraryProposer, changes_for
from autoresearch.ideas import ideas
from tests.support.code_menus import code_menu
from tests.support.memories import fresh_memory, remember
from tests.support.scripted import ScriptedProposer
from trainer.code import SLOTS, check_statically, normalize, slot_of
from trainer.code_check import checks
from trainer.schema import Budget

MENU = code_menu()
RAILS = Rails(MENU, budget=Budget())
IDEAS = {idea.name: idea for idea in ideas()}
X = torch.linspace(-4, 4, 41, dtype=torch.float64)


def function(name: str) -> Any:
    """Return an idea as Python runs it, without the rails."""
    space: dict[str, Any] = {"torch": torch, "F": functional, "math": math, "beta1": 0.9}
    idea = IDEAS[name]
    exec(normalize(slot_of(idea.slot), idea.code), {**space, "beta2": 0.95}, space)
    return space[idea.slot]


@pytest.mark.parametrize("name", IDEAS)
def test_the_static_rails_pass_every_idea(name: str) -> None:
    idea = IDEAS[name]
    assert check_statically(idea.slot, idea.code) is None
    changes = changes_for(idea, fresh_memory(MENU))
    checked = RAILS.check(json.dumps({"changes": changes, "reason": str(idea)}), MENU.baseline)
    assert checked.verdict.allowed, checked.verdict.why
    assert checked.config is not None
    assert checked.config.code == {slot_of(idea.slot).key: changes[slot_of(idea.slot).key]}


def test_there_are_ideas_of_every_kind() -> None:
    assert {idea.slot for idea in ideas()} == {*SLOTS} - {"update_rest"}


Y = X.flip(0)
NORMED, WEIGHT = torch.randn(3, 8, dtype=torch.float64), torch.rand(8, dtype=torch.float64)
LOGITS, HIDDEN = torch.randn(5, 7, dtype=torch.float64), torch.randn(5, 3)
ENTROPY = torch.distributions.Categorical(logits=LOGITS).entropy().mean()


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("squared_relu", (X,), X.clamp(min=0) ** 2),
        ("swish", (X,), functional.silu(X)),
        ("mish", (X,), functional.mish(X)),
        ("elu", (X,), functional.elu(X)),
        ("star_relu", (X,), 0.8944 * X.clamp(min=0) ** 2 - 0.4472),
        ("xielu", (X,), torch.where(X > 0, 0.8 * X * X, 0.8 * (X.exp() - 1 - X)) + X / 2),
        ("capped_logits", (X,), 30 * torch.tanh(X / 30)),
        ("swiglu", (X, Y), functional.silu(X) * Y),
        ("geglu", (X, Y), functional.gelu(X) * Y),
        ("reglu", (X, Y), functional.relu(X) * Y),
        ("glu", (X, Y), torch.sigmoid(X) * Y),
        ("rmsnorm", (NORMED, WEIGHT), functional.rms_norm(NORMED, (8,), WEIGHT, 1e-5)),
        ("z_loss", (LOGITS, HIDDEN), 1e-4 * (LOGITS.logsumexp(-1) ** 2).mean()),
        ("confidence_penalty", (LOGITS, HIDDEN), -0.1 * ENTROPY),
    ],
)
def test_functions_follow_their_formulas(
    name: str, arguments: tuple[torch.Tensor, ...], expected: torch.Tensor
) -> None:
    torch.testing.assert_close(function(name)(*arguments), expected)


def test_the_peri_norm_scales_each_row() -> None:
    residual = function("peri_norm")(NORMED, 5 * NORMED, 0, 4) - NORMED
    assert residual.square().mean(-1) == pytest.approx(1, rel=1e-4)


def test_scores_are_biased_by_distance_and_never_for_the_own_place() -> None:
    scores = torch.zeros(1, 2, 5, 5)
    for name in ("alibi", "kerple_log"):
        biased = function(name)(scores)[0, 0]
        assert (biased.diagonal() == 0).all()
        assert (biased[4].diff() > 0).all()
    scaled = function("scalable_softmax")(scores + 1)[0, 0]
    torch.testing.assert_close(scaled[:, 0], 0.43 * torch.log(torch.arange(1.0, 6)))


SCHEDULES = [idea.name for idea in ideas() if idea.slot == "schedule"]


@pytest.mark.parametrize("name", SCHEDULES)
def test_schedules_warm_up_and_end_low(name: str) -> None:
    schedule = function(name)
    values = [schedule(step, 1000, 20) for step in range(1, 1001)]
    assert 0 < values[0] <= 0.11
    assert max(values) == pytest.approx(1, abs=0.01)
    assert min(values) >= 0
    if name != "inverse_root":
        assert values[-1] <= 0.11
    assert values[979:] == sorted(values[979:], reverse=True)


def test_the_decay_of_wsd_is_one_minus_the_root() -> None:
    schedule = function("wsd_one_minus_root")
    values = [schedule(step, 1000, 20) for step in range(1, 1001)]
    assert set(values[20:801]) == {1.0}
    assert values[850] == pytest.approx(1 - math.sqrt(50 / 200))


def test_initial_matrices_are_orthogonal_or_have_their_spread() -> None:
    for shape in ((64, 16), (16, 64)):
        q = function("orthogonal")(shape, shape[1], 0, 4, torch.Generator().manual_seed(1))
        small = q @ q.T if shape[0] < shape[1] else q.T @ q
        torch.testing.assert_close(small / small[0, 0], torch.eye(16), atol=1e-4, rtol=0)
        assert float(q.std()) == pytest.approx(0.02, rel=0.05)
    drawn = function("small_init")((512, 256), 256, 0, 4, torch.Generator().manual_seed(1))
    assert float(drawn.std()) == pytest.approx(math.sqrt(2 / (5 * 256)), rel=0.02)


def steps(name: str, gradients: list[torch.Tensor], lr: float = 1e-2) -> torch.Tensor:
    """Return a parameter after these gradients, from zero."""
    param = torch.zeros_like(gradients[0])

    class State(SimpleNamespace):
        def __getattr__(self, _: str) -> torch.Tensor:
            return torch.zeros_like(param)

    state, update = State(), function(name)
    for step, gradient in enumerate(gradients, start=1):
        param = update(param, gradient, state, lr, step)
    return param


GRADIENTS = [torch.randn(6, 4, generator=torch.Generator().manual_seed(n)) for n in range(4)]


def test_lion_moves_by_the_sign_of_a_mean() -> None:
    mean, param = torch.zeros(6, 4), torch.zeros(6, 4)
    for gradient in GRADIENTS:
        param = param - 0.2 * 1e-2 * torch.sign(0.9 * mean + 0.1 * gradient)
        mean = 0.99 * mean + 0.01 * gradient
    torch.testing.assert_close(steps("lion", GRADIENTS), param)


def test_muon_moves_by_an_orthogonal_matrix() -> None:
    for gradients in (GRADIENTS, [gradient.T for gradient in GRADIENTS]):
        moved = steps("muon", gradients[:1]) / (0.2 * math.sqrt(6) * 1e-2)
        singular = torch.linalg.svdvals(moved)
        assert 0.6 < float(singular.min()) <= float(singular.max()) < 1.3
        u, _, v = torch.linalg.svd(gradients[0], full_matrices=False)
        assert float((moved * -(u @ v)).sum()) > 0.8 * 4


@pytest.mark.parametrize("name", ["ademamix", "adam_rms_clipped", "laprop", "adam_mini"])
def test_variants_of_adam_begin_as_adam_does(name: str) -> None:
    moved = steps(name, GRADIENTS[:1])
    assert (moved.sign() == -GRADIENTS[0].sign()).all()
    assert float(moved.square().mean().sqrt()) == pytest.approx(1e-2, rel=0.15)


def test_cautious_updates_never_move_up_the_gradient() -> None:
    before = steps("cautious_adam", GRADIENTS[:3])
    moved = steps("cautious_adam", GRADIENTS) - before
    assert (moved * GRADIENTS[3] <= 0).all()
    assert bool((moved == 0).any())


def test_each_idea_is_tried_once_and_then_another_proposer_follows() -> None:
    menu = code_menu("activation", "gate")
    memory = fresh_memory(menu)
    then = ScriptedProposer(['{"changes": {"lr": 0.004}, "reason": "r"}'] * 100)
    proposer = LibraryProposer(Rails(menu, budget=Budget()), then)
    seen = []
    while (offer := proposer.propose(memory)).record.kind == "library":
        changes = offer.reply.changes
        seen.append(frozenset(changes))
        memory = remember(memory, changes, 3.9)
    count = sum(idea.slot in {"activation", "gate"} for idea in ideas())
    assert len(seen) == count
    assert frozenset({"activation", "code.gate"}) in seen


@pytest.mark.slow
def test_the_rails_that_run_code_pass_every_idea(monkeypatch: pytest.MonkeyPatch) -> None:
    menu = load_menu("cpu-tiny-code")
    monkeypatch.setattr(checks, "prices", lambda _: (1.0, 1.0))
    memory, refused = fresh_memory(menu), {}
    for idea in ideas():
        config = menu.apply(menu.baseline, changes_for(idea, memory))
        if why := checks.verdict_on(config, 2.0).why:
            refused[idea.name] = why
    assert not refused
