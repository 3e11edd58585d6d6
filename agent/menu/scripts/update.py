"""Update a drafted menu: take what is new from the script, and keep what a person changed.

The text as it was drafted is kept beside the menu in a hidden file. What a person changed since
differs from it, and stays; everything else is replaced by the new draft. A knob that a person
deleted stays deleted.
"""

import re
import shlex
from pathlib import Path
from typing import Any

import tomlkit
from tomlkit.exceptions import TOMLKitError

from autoresearch.errors import MenuError
from autoresearch.files import read_given, replace_file, write_new

_MOST_BYTES = 1 << 20


def draft_beside(menu: Path) -> Path:
    """Return the hidden file that keeps a menu's text as it was drafted."""
    return menu.with_name(f".{menu.name}.draft")


def write_draft(menu: Path, text: str) -> tuple[str, list[str]]:
    """Write a draft to a new file or over an older draft; return what was written, and the keys
    that keep a person's change.

    :raises MenuError: if there is a file that is no draft, or that cannot be written.
    """
    base = draft_beside(menu)
    if not menu.exists() or not base.is_file():
        write_new(menu, text, error=MenuError)
        replace_file(base, text)
        return text, []
    try:
        old = tomlkit.parse(read_given(base, _MOST_BYTES).decode()).unwrap()
        mine = tomlkit.parse(read_given(menu, _MOST_BYTES).decode()).unwrap()
    except (OSError, ValueError, TOMLKitError) as error:
        raise MenuError(
            f"{menu} cannot be updated ({error}); fix it, or give another --out"
        ) from error
    document, kept = tomlkit.parse(text), list[str]()
    command = _command(*(one.get("trainer", {}) for one in (document, old, mine)))
    _keep(document, old, mine, "", kept)
    deleted = {name for name in old.get("knobs", {}) if name not in mine.get("knobs", {})}
    used = [one for one in command if not deleted & set(re.findall(r"\{(\w+)", one))]
    if used != _words(document["trainer"].get("command", "")):
        is_plain = all(shlex.split(one) == [one] for one in used)
        document["trainer"]["command"] = " ".join(used) if is_plain else used
    merged = tomlkit.dumps(document)
    replace_file(menu, merged)
    replace_file(base, text)
    return merged, kept


def _words(command: Any) -> list[str]:
    return shlex.split(command) if isinstance(command, str) else [str(one) for one in command]


def _command(new: Any, old: Any, mine: Any) -> list[str]:
    """Return a person's command with the words that are new in the draft, and without those that
    are gone from it."""
    drafted, before, now = (_words(one.get("command", "")) for one in (new, old, mine))
    gone = [one for one in before if one not in drafted]
    added = [one for one in drafted if one not in before and one not in now]
    return [*(one for one in now if one not in gone), *added]


def _keep(new: Any, old: dict[str, Any], mine: dict[str, Any], place: str, kept: list[str]) -> None:
    """Put into a new draft what differs between an old draft and a person's file."""
    for key in dict.fromkeys([*old, *mine]):
        before, now = old.get(key), mine.get(key)
        if before == now or (place, key) == ("trainer.", "command"):
            continue
        both = isinstance(before, dict) and isinstance(now, dict) and isinstance(new.get(key), dict)
        if both and key not in old.get("knobs", {}) and place in {"", "trainer."}:
            _keep(new[key], before or {}, now or {}, f"{place}{key}.", kept)
            continue
        kept.append(f"{place}{key}")
        if key not in mine:
            new.pop(key, None)
        else:
            new[key] = _inline(now) if place == "knobs." else now


def _inline(table: Any) -> Any:
    inline = tomlkit.inline_table()
    inline.update(table if isinstance(table, dict) else {})
    return inline if isinstance(table, dict) else table
