"""Check which devices' telemetry is used for a campaign's trials."""

from __future__ import annotations

import pytest

from agent.workbench import device_choice as module
from agent.workbench.device_choice import device_telemetry
from trainer.telemetry import NoTelemetry


def test_the_meter_of_one_gpu_does_not_speak_for_several(monkeypatch: pytest.MonkeyPatch) -> None:
    """The report would otherwise show one GPU's energy as that of the whole campaign."""
    asked: list[str] = []

    def choose(device: str, **_environment: str | None) -> NoTelemetry:
        asked.append(device)
        return NoTelemetry("a test")

    monkeypatch.setattr(module, "choose_telemetry", choose)
    assert device_telemetry("cuda", 1).description == "none: a test"
    assert asked == ["cuda"]
    several = device_telemetry("cuda", 4)
    assert several.description == "none: 4 GPUs are in use, and one meter does not cover them"
    assert several.sample().blank
    assert "on the nodes of a cluster" in device_telemetry("cuda", 1, here=False).description
    assert asked == ["cuda"]
