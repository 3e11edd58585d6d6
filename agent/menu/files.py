"""Read menus from TOML files: the shipped ones by name, others by path.

``[knobs.NAME]`` tables hold a domain and a default, ``[code.NAME]`` tables the slots of the built-
in GPT that a function may fill (:mod:`agent.menu.code_knob`), or the marked regions of a script
(:mod:`agent.menu.code_knob`), ``[tied]`` formulas of fields that
follow the knobs. ``[constants]`` holds every other field of Config, ``[[constraints]]`` conditions
over all of them in the language of :mod:`agent.menu.expressions`. ``[campaign]`` holds the budget
and corpus that the menu was made for. With a ``[trainer]`` the menu is for a command, and its
fields are the inputs of that command (:mod:`agent.menu.trainer_table`). A file that cannot be used
is refused in one sentence that names the knob and the fix.
"""

import tomllib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from agent.menu.code_knob import CODE_KEYS, REGION_KEYS, CodeKnob, RegionKnob
from agent.menu.knobs import Constraint, Knob
from agent.menu.proxy_menu import CampaignDefaults, ProxyMenu
from agent.menu.trainer_table import CheckTable, TrainerTable, refuse
from autoresearch.errors import AutoresearchError, MenuError, SpecError
from autoresearch.files import read_given
from autoresearch.options import built_in_flags
from autoresearch.values import Frozen, explain
from autoresearch.words import did_you_mean, json_text
from trainer.schema import RunSchedule
from trajectory.rows import CampaignRow

__all__ = [
    "CampaignDefaults",
    "Constraint",
    "Knob",
    "ProxyMenu",
    "load_menu",
    "menu_of",
    "parse_menu",
    "shipped_menus",
]

T = TypeVar("T")
R = TypeVar("R", bound=Frozen)


def menu_of(row: CampaignRow) -> ProxyMenu:
    """Return the menu a campaign was created with, from its own first row."""
    return parse_menu(row.menu_toml, f"the first row of campaign {row.id}")


def parse_menu(toml: str, source: str) -> ProxyMenu:
    """Parse a menu from TOML text; messages call it ``source``.

    :raises MenuError: naming the knob or the line, and the fix.
    """
    document = _FILES.document(toml, source)
    try:
        return _menu(document, toml)
    except ValidationError as error:
        raise MenuError(f"menu {source}: {explain(error)}") from error
    except (ValueError, SpecError) as error:
        raise MenuError(f"menu {source}: {error}") from error


def _menu(document: dict[str, Any], toml: str) -> ProxyMenu:
    parts = "name doc knobs code tied constants constraints campaign trainer score".split()
    refuse_unknown(document, parts, "the menu")
    knobs = _table(document, "knobs")
    if not knobs:
        raise ValueError("there is no [knobs.NAME] table; add one for each knob")
    constraints, tied = document.get("constraints", []), _table(document, "tied")
    if not isinstance(constraints, list):
        raise ValueError("constraints is not a list; head each one with [[constraints]]")  # noqa: TRY004
    advice = 'write its formula in quotation marks, such as "d_model / 64", or make it a constant'
    for field, formula in tied.items():
        said = f"tied {field} is {json_text(formula)}; {advice}"
        refuse((not isinstance(formula, str), said))
    code = _table(document, "code")
    trainer = _trainer(document, tuple(code))
    keys, read = CODE_KEYS, CodeKnob.read
    if trainer is not None:
        set_there = [*knobs, *_table(document, "constants"), *trainer.edits]
        keys, read = REGION_KEYS, partial(RegionKnob.of, reserved=set_there)
    codes = [
        _part(f"[code.{name}]", table, keys, partial(read, name)) for name, table in code.items()
    ]
    name = document.get("name")
    if not isinstance(name, str) or not name.strip() or not name.isprintable() or len(name) > 64:
        raise ValueError(
            f'its name is {json_text(name)}; give it a name = "…" of 1 to 64 characters'
        )
    read_knobs = {
        key: _part(f"knob {key}", table, Knob.keys(), partial(Knob.read, key))
        for key, table in knobs.items()
    }
    return ProxyMenu(
        name=name,
        doc=document.get("doc", ""),
        knobs=read_knobs | {knob.name: knob for knob in codes},
        tied=tied,
        constants=_table(document, "constants"),
        constraints=tuple(_record("a constraint", one, Constraint) for one in constraints),
        campaign=_record(
            "[campaign]", _campaign(_table(document, "campaign"), trainer), CampaignDefaults
        ),
        trainer=trainer,
        toml=toml,
    )


def _trainer(document: dict[str, Any], slots: tuple[str, ...]) -> TrainerTable | None:
    table, score = _table(document, "trainer"), _table(document, "score")
    refuse_unknown(score, ("check",), "[score]")
    if not table:
        if score:
            raise ValueError("[score.check] is for a menu with a [trainer]; add one, or remove it")
        return None
    refuse_unknown(table, TrainerTable.model_fields.keys() - {"slots", "check"}, "[trainer]")
    if score:
        check = _record("[score.check]", score["check"], CheckTable)
        table = {"score": check.rule, **table, "check": check}
    return _record("[trainer]", {**table, "slots": slots}, TrainerTable)


_OF_A_CORPUS = ("corpus", "tokenizer", "heldout_bytes")
COMMANDS_OWN = "the command's own"
"""Name of the corpus of a command that brings its own text."""


def _campaign(table: dict[str, Any], trainer: TrainerTable | None) -> dict[str, Any]:
    table = dict(table)
    if trainer is not None:
        has_horizon = table.get("horizon_steps", "budget") != "budget"
        refuse(
            *(
                (
                    key in table,
                    f"[campaign] has {key}, and the command brings its own text, schedule and "
                    "weights; remove it",
                )
                for key in (*_OF_A_CORPUS, *built_in_flags(RunSchedule))
            ),
            (
                has_horizon and not trainer.tells("horizon"),
                "[campaign] has horizon_steps, and the command does not take {horizon}; remove it",
            ),
        )
        table |= {"corpus": COMMANDS_OWN, "tokenizer": COMMANDS_OWN}
        table.setdefault("budget", "60 steps" if "steps" in trainer.asked else "1 run")
        table.setdefault("horizon_steps", 1000 if "horizon" in trainer.asked else "budget")
    return table


def refuse_unknown(table: Iterable[str], keys: Iterable[str], what: str) -> None:
    """Refuse a table with a key that is none of ``keys``.

    :raises ValueError: naming the key and a similar known key.
    """
    keys = list(keys)
    for key in table:
        if key not in keys:
            raise ValueError(f"{what} has an unknown key {json_text(key)}{did_you_mean(key, keys)}")


def _record(what: str, table: object, kind: type[R]) -> R:
    return _part(what, table, kind.model_fields, kind.model_validate)


def _part(what: str, table: object, keys: Iterable[str], read: Callable[[dict[str, Any]], T]) -> T:
    if not isinstance(table, dict):
        raise ValueError(f"{what} is {json_text(table)}; make it a table of key = value lines")  # noqa: TRY004
    refuse_unknown(table, keys, what)
    try:
        return read(table)
    except ValidationError as error:
        raise ValueError(f"{what}: {explain(error)}") from error
    except ValueError as error:
        raise ValueError(f"{what}: {error}") from error


def _table(document: dict[str, Any], key: str) -> dict[str, Any]:
    table = document.get(key, {})
    if not isinstance(table, dict):
        raise ValueError(f"{key} is {json_text(table)}; make it a table headed [{key}]")  # noqa: TRY004
    return table


# --- where TOML files come from ------------------------------------------------------------------

MAX_FILE_BYTES = 1 << 20
MAX_DOTS = 64
"""Most dots between two commas of a line: the standard library's time for a dotted key grows with
the cube of its parts."""


@dataclass(frozen=True, slots=True)
class TomlFiles:
    """One kind of file, such as menus, shipped or a user's own."""

    noun: str
    """Noun for a file of this kind in messages: ``menu``."""
    package: str
    """Package whose folder ``shipped`` holds the shipped files."""
    error: type[AutoresearchError]
    """Error to raise for a file that cannot be read."""

    def names(self) -> list[str]:
        """Return the names of the shipped files, in order."""
        return sorted(
            file.name.removesuffix(".toml")
            for file in self._shipped().iterdir()
            if file.name.endswith(".toml")
        )

    def text(self, name_or_path: str) -> str:
        """Return the text of the shipped file of that name, else of the file at that path."""
        shipped = self.names()
        if name_or_path in shipped:
            return (self._shipped() / f"{name_or_path}.toml").read_text("utf-8")
        try:
            return read_given(Path(name_or_path).expanduser(), MAX_FILE_BYTES).decode("utf-8")
        except (FileNotFoundError, NotADirectoryError) as error:
            raise self.error(
                f"there is no {self.noun} {json_text(name_or_path)}"
                f"{did_you_mean(name_or_path, shipped)}; give a shipped {self.noun}'s name or the "
                "path of a TOML file"
            ) from error
        except (OSError, ValueError, RuntimeError) as error:
            reason = error.strerror or error if isinstance(error, OSError) else error
            raise self.error(
                f"{self.noun} {name_or_path} cannot be read: {reason}; give a TOML file in UTF-8 "
                f"of at most {MAX_FILE_BYTES:,} bytes"
            ) from error

    def _shipped(self) -> Traversable:
        return resources.files(self.package) / "shipped"

    def document(self, toml: str, source: str) -> dict[str, Any]:
        """Return the tables of a text that messages call ``source``."""
        # Number lists and prose have commas or few dots; keys have no commas.
        parts = [part for line in toml.splitlines() for part in line.split(",")]
        if any(part.count(".") > MAX_DOTS for part in parts):
            raise self.error(
                f"{self.noun} {source} has a key or a sentence of over {MAX_DOTS} dots; shorten it"
            )
        try:
            return tomllib.loads(toml)
        except (ValueError, RecursionError) as error:
            raise self.error(
                f"{self.noun} {source} is not readable TOML: {error}; fix it there"
            ) from error


_FILES = TomlFiles(noun="menu", package="agent.menu", error=MenuError)


def shipped_menus() -> list[str]:
    """Return the names of the shipped menus, in order."""
    return _FILES.names()


def load_menu(name_or_path: str) -> ProxyMenu:
    """Load a shipped menu by its name, else the menu in a file.

    :raises MenuError: if there is none, or if it cannot be used.
    """
    return parse_menu(_FILES.text(name_or_path), name_or_path)
