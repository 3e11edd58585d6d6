"""The base package, which imports no other, and the public Python interface.

>>> import autoresearch
>>> night = autoresearch.open_campaign("runs/cpu-tiny")
>>> night.top(3)[0].objective
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agent.commands.campaign_view import CampaignView

__all__ = ["open_campaign"]


def open_campaign(path: str | Path) -> CampaignView:
    """Open a campaign's directory for reading.

    :raises CampaignError: if the directory holds no campaign.
    """
    # Loaded here because every module of the product imports this one first.
    from agent.commands.campaign_view import CampaignView  # noqa: PLC0415

    return CampaignView(Path(path))
