"""Which campaign a command means, and what is said where there is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.workbench.places import existing_campaign
from autoresearch.errors import CampaignError
from autoresearch.layout import JOURNAL_FILE


@pytest.mark.parametrize(
    ("others", "said"),
    [
        ((), "--campaign, or start one"),
        (("menu",), "--campaign (there is runs/menu), or start one"),
        ((*"fcbead",), "(there is runs/a, runs/b, runs/c, runs/d, runs/e, …), or"),
    ],
)
def test_where_the_default_is_no_campaign_those_beside_it_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, others: tuple[str, ...], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in others:
        (tmp_path / "runs" / name).mkdir(parents=True)
        (tmp_path / "runs" / name / JOURNAL_FILE).touch()
    with pytest.raises(CampaignError) as refused:
        existing_campaign(None, None)
    assert said in str(refused.value)


def test_a_menu_s_campaign_has_its_file_s_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs" / "mine").mkdir(parents=True)
    (tmp_path / "runs" / "mine" / JOURNAL_FILE).touch()
    assert existing_campaign(None, "some/where/mine.toml") == Path("runs/mine")
