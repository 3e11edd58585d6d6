"""A lane's own side that is asked without Ray between."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support.commands import command, command_spec
from trainer.executors.ray.node import NodeLane
from trainer.executors.ray.parcels import Parcels
from trainer.executors.ray.scripts import Scripts
from trainer.executors.ray.shipping import Shipping
from trainer.executors.ray.values import LaneOrder
from trainer.spec import Command

_TOKEN = "a" * 16


class AskedNode:
    """A lane that is asked directly, and what of; it takes parcels and runs nothing."""

    def __init__(self, directory: Path, change: Callable[[bytes], bytes] = bytes) -> None:
        """
        :param change: what becomes of pieces on their way.
        """
        told = LaneOrder(token=_TOKEN, entry="none:none", data_dir=str(directory), lease_s=9)
        self._lane = NodeLane(told.model_dump_json())
        self._lane._parcels = Parcels(directory)
        self._lane._scripts = Scripts(directory, directory / "lanes" / _TOKEN)
        self._change = change
        self.asked: list[str] = []

    def ask(self, method: str, *arguments: object, within_s: float) -> bytes:
        """What the lane answers."""
        self.asked.append(method)
        if method == "take":
            sha256, name, data = arguments
            assert isinstance(data, bytes)
            arguments = (sha256, name, self._change(data))
        answer: bytes = getattr(self._lane, method)(*arguments)
        return answer

    def end(self) -> None:
        """The lane is over."""
        self._lane.close()


def localised(own: Path, node: AskedNode, ship: Shipping | None = None, **changes: Any) -> Command:
    """A command of the script in ``own``, as it runs on a node."""
    spec = command_spec(command=command(directory=str(own), **changes))
    trial_dir = own.parent / "campaign" / "trials" / "t000001"
    there = (ship or Shipping()).localised(spec, node, trial_dir).command
    assert there is not None
    return there
