"""Find campaigns by the directory options that every command shares."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agent.menu.files import load_menu
from agent.search.campaign_start import read_campaign_row
from agent.settings.campaign import DEFAULT_MENU
from autoresearch.campaign_files import has_file, status_of
from autoresearch.errors import AutoresearchError, CampaignError, MenuError
from autoresearch.layout import IMPORTED_FILE, JOURNAL_FILE, is_imported
from autoresearch.program import copyable, quote

if TYPE_CHECKING:
    from trajectory.formats.importing import ImportedCampaign

_UNUSUAL = re.compile(r"[^\w.-]+")
"""Characters of a menu's name that its folder does not have."""

CampaignOption = Annotated[
    Path | None,
    typer.Option("--campaign", help="A directory. Default: the latest in runs."),
]

TrustOption = Annotated[
    bool,
    typer.Option(
        "--trust", help="Allow what the campaign asks for, although somebody else began it."
    ),
]


YesOption = Annotated[bool, typer.Option("--yes", help="Start without a question, however long.")]


def default_campaign(menu: str | None) -> Path:
    """Return ``runs/NAME`` in the current directory, by the menu's name.

    A campaign of this menu in a folder with the name of the menu's file, as earlier versions chose
    it, is found there. So is that of a menu that can no longer be read.

    :raises CampaignError: if a link leads there and no campaign is there yet.
    """
    directory = _named_after(menu)
    if (link := _link_to(directory)) is not None and not has_file(directory, JOURNAL_FILE):
        raise CampaignError(
            f"{link} is a link to {quote(link.readlink())}, and no campaign is begun behind a"
            f" link that nobody named; if you made it, add: --campaign {quote(directory)}"
        )
    return directory


def _link_to(directory: Path) -> Path | None:
    """Return the link by which ``runs/NAME`` leads elsewhere; None if none does."""
    return next((place for place in (directory.parent, directory) if place.is_symlink()), None)


def _named_after(menu: str | None) -> Path:
    former = Path("runs") / Path(menu or DEFAULT_MENU).stem
    try:
        name = load_menu(menu or DEFAULT_MENU).name
    except MenuError:
        return former
    with suppress(AutoresearchError):
        row = read_campaign_row(former) if has_file(former, JOURNAL_FILE) else None
        if row is not None and row.menu_name == name:
            return former
    return Path("runs") / (_file_name(name) or former.name)


def measurements_of(kind: str, source: str, menu: str) -> Path:
    """Return ``runs/KIND-MENU``, where measurements with a menu go; ``runs/KIND-FILE``, by the name
    of the menu's file, if an earlier version has measured there.

    :param source: the menu's name or file, as the user gave it.
    :param menu: the menu's own name.
    :raises CampaignError: if a link leads there.
    """
    directory = Path("runs") / f"{kind}-{Path(source).stem}"
    if not directory.is_dir():
        directory = Path("runs") / f"{kind}-{_file_name(menu) or 'menu'}"
    if (link := _link_to(directory)) is not None:
        raise CampaignError(
            f"{link} is a link to {quote(link.readlink())}, and no measurement is written behind a"
            " link that nobody named; run this in another directory"
        )
    return directory


def _file_name(name: str) -> str:
    return _UNUSUAL.sub("-", name).strip("-.")


def latest_campaign() -> Path:
    """Return the campaign in ``runs`` that was written to last, else that of the default menu."""
    written: list[tuple[float, Path]] = []
    for directory in Path("runs").glob("*"):
        for name in (JOURNAL_FILE, IMPORTED_FILE):
            if (status := status_of(directory, name)) is not None:
                written.append((status.st_mtime, directory))
    return max(written, default=(0.0, Path("runs") / DEFAULT_MENU))[1]


def say_if_new(directory: Path) -> None:
    """Print which campaign was written to last if ``directory``, the default, has none yet."""
    latest = latest_campaign()  # no loop resumes one that was imported, which has no journal
    if has_file(latest, JOURNAL_FILE) and not has_file(directory, JOURNAL_FILE):
        typer.echo(
            copyable(
                f"{directory} is a new campaign, of menu {DEFAULT_MENU}; to resume the latest, run:"
                f" autoresearch loop --campaign {quote(latest)}"
            ),
            err=True,
        )


def existing_campaign(campaign: Path | None) -> Path:
    """Return the directory meant, which must hold a campaign.

    :raises CampaignError: if it holds none.
    """
    directory = campaign or latest_campaign()
    if foreign_campaign(directory) is not None:
        raise CampaignError(
            f"{directory} was imported from another tool, so only top, report and loop --prior "
            "can read it; choose one of this tool's campaigns with --campaign"
        )
    if not has_file(directory, JOURNAL_FILE):
        raise CampaignError(
            f"{directory} holds no campaign (no {JOURNAL_FILE}); choose one with --campaign, "
            f"or start one with: autoresearch loop"
        )
    return directory


def foreign_campaign(directory: Path) -> ImportedCampaign | None:
    """Return the imported campaign of another tool in this directory; None if it holds no such
    campaign."""
    if not is_imported(directory):
        return None
    from trajectory.formats.importing import read_imported  # noqa: PLC0415 (of use to few)

    campaign = read_imported(directory)
    return campaign if campaign.is_foreign else None


def refuse_imported(directory: Path) -> None:
    """
    :raises CampaignError: if the directory holds an imported campaign, which is read-only.
    """
    if is_imported(directory):
        raise CampaignError(
            f"{directory} was imported and is read-only; start a campaign of its own that learns "
            f"from it: autoresearch loop --prior {quote(directory)} --campaign runs/NAME"
        )
