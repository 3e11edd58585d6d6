import os
from functools import partial
from pathlib import Path

import pytest

import autoresearch
from agent.session.places import (
    default_campaign,
    existing_campaign,
    measurements_of,
    say_if_new,
)
from agent.settings.campaign import DEFAULT_MENU
from autoresearch.errors import CampaignError
from autoresearch.layout import IMPORTED_FILE, JOURNAL_FILE
from tests.support.places import ROOT
from tests.support.rows import campaign_row, write_journal


def test_a_directory_without_a_campaign_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CampaignError):
        existing_campaign(tmp_path / "missing")
    with pytest.raises(CampaignError):
        autoresearch.open_campaign(tmp_path)


def test_the_campaign_written_last_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for age_s, name in enumerate(("newest", "older", "oldest")):
        journal = tmp_path / "runs" / name / JOURNAL_FILE
        journal.parent.mkdir(parents=True)
        journal.touch()
        os.utime(journal, (1e9 - age_s, 1e9 - age_s))
    assert existing_campaign(None) == Path("runs/newest")


def test_a_loop_that_would_start_another_campaign_names_the_latest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    say_if_new(default_campaign(None))  # nothing is there, so nothing can be meant
    (tmp_path / "runs" / "imported").mkdir(parents=True)
    (tmp_path / "runs" / "imported" / IMPORTED_FILE).touch()
    say_if_new(default_campaign(None))
    os.utime(tmp_path / "runs" / "imported" / IMPORTED_FILE, (1e9, 1e9))
    (tmp_path / "runs" / "spark-354m").mkdir(parents=True)
    (tmp_path / "runs" / "spark-354m" / JOURNAL_FILE).touch()
    say_if_new(Path("runs/spark-354m"))
    assert not capsys.readouterr().err
    say_if_new(default_campaign(None))
    assert "--campaign runs/spark-354m" in capsys.readouterr().err


def test_a_campaign_s_folder_has_the_menu_s_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shipped = (ROOT / "agent" / "menu" / "shipped" / "cpu-tiny.toml").read_text("utf-8")
    for folder, name in (("a", "first"), ("b", "second one/../x")):
        (tmp_path / folder).mkdir()
        text = shipped.replace('name = "cpu-tiny"', f'name = "{name}"')
        (tmp_path / folder / "menu.toml").write_text(text)
    assert default_campaign("a/menu.toml") == Path("runs/first")
    assert default_campaign("b/menu.toml") == Path("runs/second-one-..-x")
    assert default_campaign("missing.toml") == Path("runs/missing")
    assert default_campaign(None) == Path("runs", DEFAULT_MENU)

    named = partial(measurements_of, "envelope", "b/menu.toml")
    assert named("second one/../x") == Path("runs/envelope-second-one-..-x")
    (tmp_path / "runs" / "envelope-menu").mkdir(parents=True)  # of an earlier version
    assert named("second one/../x") == Path("runs/envelope-menu")

    earlier = tmp_path / "runs" / "menu"  # where an earlier version began it
    earlier.mkdir(parents=True)
    row = campaign_row().model_copy(update={"menu_name": "first"})
    write_journal(earlier / JOURNAL_FILE, [row])
    assert default_campaign("a/menu.toml") == Path("runs/menu")
    assert default_campaign("b/menu.toml") == Path("runs/second-one-..-x")


@pytest.mark.parametrize("link", ["runs", "runs/compare-mine", "runs/compare-menu"])
def test_no_measurement_is_written_behind_a_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, link: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "outside").mkdir()
    Path(link).parent.mkdir(exist_ok=True)
    Path(link).symlink_to(tmp_path / "outside")
    with pytest.raises(CampaignError):
        measurements_of("compare", "menu.toml", "mine")
