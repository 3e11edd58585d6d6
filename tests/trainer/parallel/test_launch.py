"""Test a job of several ranks on one machine: its layouts, its launch and its end."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator

import psutil
import pytest
import torch
from pydantic import ValidationError

from tests.support.configs import config
from trainer.parallel.job import SINGLE, DeviceKind, Layout, LayoutLosses, ParallelJob
from trainer.parallel.launch import Launcher, LayoutFailed
from trainer.spec import Config

DDP = Layout(name="ddp", data=2)
FSDP = Layout(name="fsdp", data=2, sharded=True)


def launcher(steps: int, timeout_s: float, device: DeviceKind = "cpu") -> Launcher:
    small = config(n_layer=2, d_model=32, d_ff=64, seq_len=32, batch_size=4, precision="fp32")
    return Launcher(small, vocab_size=64, seed=0, steps=steps, device=device, timeout_s=timeout_s)


def workers() -> list[psutil.Process]:
    """Return the ranks below this test's process, recognized by their command lines."""
    found = []
    for process in psutil.Process().children(recursive=True):
        try:
            line = process.cmdline()
        except psutil.Error:
            continue
        if "trainer.parallel.worker" in line and "torch.distributed.run" not in line:
            found.append(process)
    return found


@pytest.fixture
def to_first_worker() -> Iterator[Callable[[signal.Signals], None]]:
    """Yield a function that sends a signal to the first rank that appears."""
    threads = []

    def begin(number: signal.Signals) -> None:
        def strike() -> None:
            while not (ranks := workers()):
                time.sleep(0.01)
            ranks[0].send_signal(number)

        threads.append(threading.Thread(target=strike))
        threads[-1].start()

    yield begin
    for thread in threads:
        thread.join()


@pytest.mark.slow
def test_every_part_of_a_recipe_trains_the_same_on_two_ranks() -> None:
    """The recipe has gains shared by all heads, norms at outputs, scaled branches and the blocks'
    own rates."""
    of = config(
        n_layer=2, d_model=32, d_ff=64, seq_len=32, batch_size=4, precision="fp32", qk_norm=True,
        norm="rmsnorm", norm_place="sandwich", positions="rotary", activation="geglu",
        mup_base_width=16, mup_base_depth=1, lr_warmup=0, lr=3e-3,
    )  # fmt: skip
    ranks = Launcher(of, vocab_size=64, seed=0, steps=5, device="cpu", timeout_s=300)
    (alone,) = ranks.run((SINGLE,))
    assert isinstance(alone, LayoutLosses)
    layouts = (Layout(name="tensor", tensor=2), Layout(name="pipeline", pipeline=2), FSDP, DDP)
    for came in ranks.run(layouts):
        assert isinstance(came, LayoutLosses), came
        assert came.losses == pytest.approx(alone.losses, rel=1e-5), came.name
        assert came.grad_norms == pytest.approx(alone.grad_norms, rel=1e-4), came.name


@pytest.mark.slow
def test_a_killed_rank_fails_its_layout_and_the_next_still_runs(
    to_first_worker: Callable[[signal.Signals], None],
) -> None:
    to_first_worker(signal.SIGKILL)
    first, second = launcher(steps=2, timeout_s=600).run((DDP, FSDP))
    assert isinstance(first, LayoutFailed)
    assert first.name == "ddp"
    assert "\n" not in first.message
    assert isinstance(second, LayoutLosses), second
    assert second.name == "fsdp"
    assert len(second.losses) == 2
    assert not workers()


@pytest.mark.slow
def test_a_rank_that_hangs_is_ended_with_all_the_others(
    to_first_worker: Callable[[signal.Signals], None],
) -> None:
    to_first_worker(signal.SIGSTOP)
    (came,) = launcher(steps=2, timeout_s=10).run((DDP,))
    assert isinstance(came, LayoutFailed)
    assert "not done after 10 s" in came.message
    assert not workers()


@pytest.mark.slow
@pytest.mark.skipif(torch.cuda.is_available(), reason="cuda works here")
def test_a_failing_rank_says_why_in_one_line() -> None:
    (came,) = launcher(steps=2, timeout_s=600, device="cuda").run((SINGLE,))
    assert isinstance(came, LayoutFailed)
    assert came.message.startswith("rank ")
    assert "\n" not in came.message


TENSOR = Layout(name="tensor", tensor=2)


def job(of: Config, *layouts: Layout) -> ParallelJob:
    return ParallelJob(
        config=of, vocab_size=64, seed=0, steps=1, device="cpu", layouts=layouts, deadline_s=9
    )


@pytest.mark.parametrize(
    ("changes", "layout", "what"),
    [
        ({"n_kv_head": 1}, TENSOR, "n_kv_head 1"),
        ({"d_ff": 511}, TENSOR, "d_ff 511"),
        ({"n_layer": 3}, Layout(name="pipe", pipeline=2), "n_layer 3"),
        ({"batch_size": 3}, Layout(name="data", data=2), "batch_size 3"),
        ({"precision": "bf16"}, SINGLE, "bf16"),
    ],
)
def test_what_cannot_be_shared_or_compared_is_refused(
    changes: dict[str, object], layout: Layout, what: str
) -> None:
    with pytest.raises(ValidationError, match=what):
        job(config(**{"precision": "fp32"} | changes), layout)


@pytest.mark.parametrize(
    "axes",
    [
        {"tensor": 2, "data": 2},
        {"pipeline": 2, "data": 2},
        {"pipeline": 3},
        {"averaged": False},
        {"data": 2, "sharded": True, "averaged": False},
    ],
)
def test_impossible_layouts_are_refused(axes: dict[str, int]) -> None:
    with pytest.raises(ValidationError):
        Layout(name="impossible", **axes)


def test_one_job_has_one_world_size() -> None:
    with pytest.raises(ValidationError):
        job(config(precision="fp32"), SINGLE, TENSOR)
