"""What is refused before anything is opened."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from agent.menu.files import load_menu
from agent.search.campaign_settings import new_settings
from agent.workbench.lanes.opening import LaneOpening
from autoresearch.errors import SettingsError


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({}, "trials run on this machine; add --executor ray"),
        ({"executor": "ray", "budget": "30 seconds"}, "another number of steps on another kind"),
    ],
)
def test_devices_of_several_kinds_need_a_cluster_and_a_budget_that_is_the_same_on_each(
    asked: dict[str, Any], said: str, tmp_path: Path
) -> None:
    menu = load_menu("cpu-tiny")
    settings = new_settings(menu, "cpu-tiny", {"mixed_devices": True, **asked})
    with ExitStack() as resources:
        opening = LaneOpening(
            resources, settings, menu, Console(), command=None, allow_unsandboxed=True
        )
        with pytest.raises(SettingsError, match=said):
            opening.opened(tmp_path)
