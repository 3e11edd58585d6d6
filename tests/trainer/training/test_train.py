"""The step loop runs on real models and real batches."""

from collections import deque
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import nn

from tests.support.configs import config
from tests.support.corpora import VOCAB_SIZE, byte_stream, prose
from trainer.backends import choose_backend
from trainer.schema import Budget, Config, CurvePoint, PruneRule
from trainer.training.schedule import Batches, Schedule
from trainer.training.train import Mark, PendingStep, Trained, TrialStopped, arrived, train

CPU = torch.device("cpu")


def small(**changes: object) -> Config:
    tiny = {"n_layer": 1, "n_head": 2, "d_model": 16, "d_ff": 32, "batch_size": 4, "seq_len": 16}
    return config(**{**tiny, "precision": "fp32", **changes})


class Run:
    """One training run with all its output: how it ended, and ``trained`` or ``stopped``."""

    trained: Trained
    stopped: TrialStopped | None = None

    def __init__(self, recipe: Config, budget: Budget | None = None, **options: Any) -> None:
        torch.manual_seed(1)
        self.model: nn.Module = choose_backend("torch").build(recipe, VOCAB_SIZE, CPU)
        self.points: list[CurvePoint] = []
        schedule = Schedule(recipe, budget or Budget(amount=12), 1000)
        how = {"log_every": 1, "prune": None, **options}
        try:
            self.trained = train(
                self.model, batches_of(recipe), schedule, report=self.points.append, **how
            )
        except TrialStopped as stopped:
            self.stopped = stopped


def batches_of(recipe: Config, device: torch.device = CPU) -> Batches:
    shape = {"batch_size": recipe.batch_size, "seq_len": recipe.seq_len}
    return Batches(byte_stream([prose(20_000)]), seed=1, device=device, **shape)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_it_learns(precision: str) -> None:
    run = Run(small(lr=1e-2, precision=precision), Budget(amount=80))
    trained = run.trained
    assert trained.train_loss_last < trained.train_loss_first - 1.0
    assert trained.steps == 80
    assert trained.tokens == 80 * 64
    assert trained.train_loss_first == run.points[0].loss
    assert trained.train_loss_last == run.points[-1].loss
    assert 0 < trained.step_ms / 1000 < trained.train_s


def test_the_curve_says_what_happened() -> None:
    recipe = small()
    run = Run(recipe)
    schedule = Schedule(recipe, Budget(amount=12), 1000)
    assert [p.step for p in run.points] == list(range(1, 13))
    assert [p.tokens for p in run.points] == [64 * step for step in range(1, 13)]
    assert [p.lr for p in run.points] == [schedule.lr(step, 0) for step in range(1, 13)]
    assert all(a.elapsed_s < b.elapsed_s for a, b in pairwise(run.points))
    assert all(p.grad_norm > 0 for p in run.points)


def test_the_first_point_is_of_the_untrained_model() -> None:
    recipe = small()
    torch.manual_seed(1)
    model = choose_backend("torch").build(recipe, VOCAB_SIZE, CPU)
    loss = model(*batches_of(recipe)(1))
    loss.backward()
    norm = torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None]).norm()
    first = Run(recipe).points[0]
    assert first.loss == pytest.approx(loss.item(), rel=1e-6)
    assert first.grad_norm == pytest.approx(norm.item(), rel=1e-5)


def test_logging_less_often_keeps_the_first_and_the_last_step_and_changes_nothing() -> None:
    often, rarely = Run(small()), Run(small(), log_every=5)
    assert [p.step for p in rarely.points] == [1, 5, 10, 12]
    assert [p.loss for p in rarely.points] == [often.points[i].loss for i in (0, 4, 9, 11)]


def test_a_budget_in_seconds() -> None:
    by_clock = Run(small(), Budget(unit="seconds", amount=0.3)).trained
    assert by_clock.train_s >= 0.3
    assert by_clock.steps >= 1


def test_a_diverging_run_stops_before_the_update_that_would_break_the_weights() -> None:
    run = Run(small(lr=1e38, lr_warmup=0, grad_clip=1e30), Budget(amount=30))
    assert run.stopped is not None
    assert (run.stopped.status, run.stopped.steps) == ("nonfinite", len(run.points))
    assert len(run.points) < 30
    # Huge, but set by the last finite step: no NaN has reached them.
    assert not any(p.isnan().any() for p in run.model.parameters())


@pytest.mark.parametrize(("share", "steps"), [(1.0001, None), (0.9999, 5)])
def test_a_run_is_pruned_by_the_mean_of_its_window(share: float, steps: int | None) -> None:
    bound = share * sum(p.loss for p in Run(small()).points[2:5]) / 3
    rule = PruneRule(at_step=5, window=3, max_loss=bound)
    stopped = Run(small(), prune=rule, log_every=100).stopped
    assert (stopped and (stopped.status, stopped.steps)) == (steps and ("pruned", steps))


# --- asynchronous devices -------------------------------------------------------------------------


class Far(Mark):
    """Stand-in for a device's mark that is reached only once it is waited for."""

    def __init__(self, reached: bool = False) -> None:
        self.here = reached

    def reached(self) -> bool:
        return self.here

    def wait(self) -> None:
        self.here = True


def steps_in_flight(*reached: bool) -> deque[PendingStep]:
    return deque(
        PendingStep(i, 0.1, torch.zeros(2), Far(here)) for i, here in enumerate(reached, 1)
    )


def test_steps_are_looked_at_in_their_order_and_never_waited_for() -> None:
    pending = steps_in_flight(True, True, False, True)
    assert [step.step for step in arrived(pending, wait=False)] == [1, 2]
    assert [step.done.reached() for step in pending] == [False, True]
    assert not list(arrived(pending, wait=False))


def test_where_the_host_must_know_it_waits_for_all() -> None:
    pending = steps_in_flight(False, False)
    assert [step.step for step in arrived(pending, wait=True)] == [1, 2]
    assert not pending


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype:UserWarning")
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_no_step_on_a_gpu_waits_for_it(precision: str) -> None:
    device = torch.device("cuda")
    recipe = small(precision=precision)
    torch.manual_seed(1)
    model = choose_backend("torch").build(recipe, VOCAB_SIZE, device)
    batches = batches_of(recipe, device)
    points: list[CurvePoint] = []
    # every operator that waits for the device is then an error
    torch.cuda.set_sync_debug_mode("error")
    try:
        schedule = Schedule(recipe, Budget(amount=12), 1000)
        train(model, batches, schedule, log_every=1, prune=None, report=points.append)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert [p.step for p in points] == list(range(1, 13))
    assert all(a.elapsed_s < b.elapsed_s for a, b in pairwise(points))
