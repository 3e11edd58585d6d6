"""Leave edits of a campaign's space where its loop takes them up.

``space.json`` holds the edits that wait. The loop takes all by a rename, and removes the file once
their rows are in the journal; after a kill it takes them again, and the journal tells which are
there.
"""

from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from autoresearch.campaign_files import has_file, read_file, remove, rename, replace_file
from autoresearch.errors import CampaignError
from autoresearch.files import writing_to
from autoresearch.layout import SPACE_FILE, SPACE_TAKEN_FILE
from trajectory.rows import SpaceRow

_EDITS: TypeAdapter[list[SpaceRow]] = TypeAdapter(list[SpaceRow])


def add_edit(directory: Path, edit: SpaceRow) -> None:
    """Leave an edit for the campaign's loop; it is on disk when this returns.

    :raises CampaignError: if the file of edits was damaged.
    :raises MachineryError: if the directory cannot be written.
    """
    edits = _EDITS.dump_json([*_read(directory, SPACE_FILE), edit])
    with writing_to(directory):
        replace_file(directory, SPACE_FILE, edits, durable=True)


def edits_in(directory: Path) -> list[SpaceRow]:
    """Return the edits that the loop has not finished with, the oldest first."""
    return [*_read(directory, SPACE_TAKEN_FILE), *_read(directory, SPACE_FILE)]


def has_edits(directory: Path) -> bool:
    """Return whether an edit waits for the loop."""
    return has_file(directory, SPACE_FILE) or has_file(directory, SPACE_TAKEN_FILE)


def take_edits(directory: Path) -> list[SpaceRow]:
    """Take the edits that wait, while holding the campaign's lock."""
    with writing_to(directory):
        if not has_file(directory, SPACE_TAKEN_FILE):
            rename(directory, SPACE_FILE, SPACE_TAKEN_FILE)
    return _read(directory, SPACE_TAKEN_FILE)


def clear_edits(directory: Path) -> None:
    """Remove the edits taken, whose rows are in the journal."""
    with writing_to(directory):
        remove(directory, SPACE_TAKEN_FILE)


def _read(directory: Path, name: str) -> list[SpaceRow]:
    try:
        return _EDITS.validate_json(read_file(directory, name))
    except FileNotFoundError:
        return []
    except (OSError, ValidationError) as error:
        raise CampaignError(
            f"{directory / name} holds no edits of a space; remove it, and give them again with: "
            "autoresearch space"
        ) from error
