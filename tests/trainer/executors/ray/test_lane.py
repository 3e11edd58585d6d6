"""The driver's side of a lane returns a trial's result, here without Ray in between."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support import hostile
from tests.support.trials import trial_ok, trial_spec
from trainer.executors.base import TrialAborted
from trainer.executors.local import LocalJob
from trainer.executors.ray.lane import RayLane
from trainer.executors.ray.node import NodeLane
from trainer.executors.ray.remote_trial import OpenLane
from trainer.executors.ray.values import LaneOrder, Opened, Progress, with_bytes
from trainer.isolation.kernel.sandbox import Layers
from trainer.spec import Place, parse_result

SPEC = trial_spec()
POINT = '{{"step": {step}, "tokens": {step}, "loss": 5.5, "lr": 0.1, "grad_norm": 1.0, "s": 0.1}}'


class Direct:
    """Lane that is called directly and records its calls."""

    def __init__(self, data_dir: Path) -> None:
        told = LaneOrder(
            token="a" * 16,
            entry=hostile.ENTRY,
            allow_unsandboxed=not Layers.detect().confine,
            fork_server=False,
            data_dir=str(data_dir),
            lease_s=60,
        )
        self._lane = NodeLane(told.model_dump_json())
        self.opened = Opened.model_validate_json(self._lane.open())
        self.asked: list[str] = []

    def ask(self, method: str, *arguments: object, **_: object) -> bytes:
        self.asked.append(method)
        answer: bytes = getattr(self._lane, method)(*arguments)
        return answer

    def end(self) -> None:
        self._lane.close()


@pytest.mark.parametrize("is_large", [False, True])
def test_what_a_trial_left_on_its_node_is_here_then_and_there_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_large: bool
) -> None:
    text = trial_ok(SPEC).model_dump_json()
    if is_large:  # both the curve and the log span several answers
        for module in ("node", "remote_trial"):
            monkeypatch.setattr(f"trainer.executors.ray.{module}.PIECE_BYTES", 500)
    lines = [POINT.format(step=step) for step in range(1, 31)]
    printed = "x" * 3000
    remote = Direct(tmp_path / "node")
    home, trial_dir = Path(remote.opened.home), tmp_path / "trials" / "t1"
    hostile.arm(home / "t1", hostile.leave_everything, lines=lines, printed=printed, text=text)
    first = OpenLane(remote, "", Place(lane="here"))
    with RayLane(first, lambda: first) as lane:
        job = lane.submit(SPEC, trial_dir)
        assert job.result().result == trial_ok(SPEC)
        assert parse_result((trial_dir / "result.json").read_bytes()) == trial_ok(SPEC)
        assert (trial_dir / "curve.jsonl").read_text().splitlines() == lines
        assert (trial_dir / "trainer.log").read_text() == printed + "\n"
        assert not (home / "t1").exists()
        asked = set(remote.asked)
    assert asked == {"start", "watch"} | ({"more", "hand_over"} if is_large else set())
    assert not home.exists()


class Cancelled:
    """Lane whose trial is cancelled while a request waits for its end."""

    def __init__(self) -> None:
        self.job: LocalJob | None = None
        self.asked: list[str] = []

    def ask(
        self, method: str, *_: object, meanwhile: Callable[[], None] = lambda: None, within_s: float
    ) -> bytes:
        self.asked.append(method)
        if method != "watch":
            return Progress().model_dump_json().encode()
        while self.job is None:
            time.sleep(0.01)
        self.job.cancelled.set()
        meanwhile()
        meanwhile()
        return with_bytes(Progress(ended=True, aborted=True, lengths=(0, 0, 0)), b"")

    def end(self) -> None:
        pass


def test_a_cancel_does_not_wait_for_the_request_that_waits_for_the_end(tmp_path: Path) -> None:
    remote = Cancelled()
    first = OpenLane(remote, "", Place(lane="here"))
    with RayLane(first, lambda: first) as lane:
        remote.job = lane.submit(SPEC, tmp_path / "t1")
        with pytest.raises(TrialAborted):
            remote.job.result()
        assert remote.asked == ["start", "watch", "cancel"]
