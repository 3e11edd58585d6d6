"""The needs of a command on a node, besides its script, which is sent there.

The program and the paths that the menu reads are the node's own. ``{python}``, and any program
beside it, is the Python that runs autoresearch there. Any other program, and each declared path,
must be there under the same path as here.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self

from autoresearch.errors import SpecError
from autoresearch.plain_text import plain
from autoresearch.values import Frozen
from trainer.command.program import environment_of
from trainer.spec import Command
from trainer.spec.command import Module

_PYTHON = "{python}"
_BESIDE_IT = "{bin}/"
_OF_THE_SCRIPT = "{script}/"
_BEFORE_A_PATH = r"""(?:(?<![^\s'"=:,;|{@])|(?<=^-[A-Za-z]))"""
"""The context before a path ``/p`` in a word: ``--root=/p``, ``/a:/p``, ``{big:/p/a|/p/b}`` and
``-I/p``, but not ``/mnt/p``."""
_BEHIND_IT = r"""(?![^\s'"/:,;|}])(?!/\.\.(?:/|$))"""
"""The context after a path: not ``/p/../q``, whose target on the node is unknown here."""
_ABSOLUTE = re.compile(_BEFORE_A_PATH + r"""(/[^\s'":,;|{}]*)""")


class Needs(Frozen):
    """The files and modules that a node needs before a lane for a command is opened there."""

    program: str
    """The program, in the form of :func:`portable_program`."""
    reads: tuple[str, ...] = ()
    """Absolute paths that the menu declares."""
    preload: tuple[Module, ...] = ()

    @classmethod
    def of(cls, command: Command) -> Self:
        """Return the needs of a command as it runs on this machine."""
        return cls(program=portable_program(command), reads=command.reads, preload=command.preload)

    def lacking(self) -> str:
        """Return what is missing on this machine, and what to do; empty if nothing is."""
        try:
            if not self.program.startswith(_OF_THE_SCRIPT):
                _found(program_here(self.program, None))
        except SpecError as error:
            return plain(f"{error}")
        for path in self.reads:
            if not Path(path).exists():
                return plain(
                    f"there is no {path}, which [trainer] reads names; put it there, under the"
                    " same path"
                )
        for name in self.preload:
            if importlib.util.find_spec(name.partition(".")[0]) is None:
                return plain(
                    f"its Python, {sys.executable}, has no {name}, which [trainer] preload names;"
                    " install it there"
                )
        return ""


def portable_program(command: Command) -> str:
    """Return a command's program in a form that another machine can resolve.

    The form names that machine's Python, a program beside it, one that comes with the script, or an
    absolute path.
    """
    program, python = Path(command.argv[0]), Path(sys.executable)
    if program == python:
        return _PYTHON
    if program.parent == python.parent:
        return _BESIDE_IT + program.name
    within = os.path.relpath(program, command.directory)
    goes_along = (
        command.programs == (str(program),)  # it belongs to no Python environment
        and not any(part.startswith(".") for part in Path(within).parts)
        and os.path.realpath(program) == os.path.normpath(program)
    )
    return _OF_THE_SCRIPT + within if goes_along else str(program)


def program_here(portable: str, tree: Path | None) -> Path:
    """Return the path on this machine of a program in the form of :func:`portable_program`.

    :param tree: the script's directory here; None if it has not arrived.
    """
    python = Path(sys.executable)
    if portable == _PYTHON:
        return python
    if portable.startswith(_BESIDE_IT):
        return python.parent / portable.removeprefix(_BESIDE_IT)
    if portable.startswith(_OF_THE_SCRIPT) and tree is not None:
        return tree / portable.removeprefix(_OF_THE_SCRIPT)
    return Path(portable)


def command_here(command: Command, portable: str, tree: Path) -> Command:
    """Return a command with this machine's paths.

    :param command: the command as it runs on the script's own machine.
    :param tree: the script's directory here.
    :raises SpecError: if the program is not here.
    """
    program = program_here(portable, tree)
    _found(program)

    update = {
        **_worded(command, _moved({command.directory}, tree)),
        "directory": str(tree),
        "programs": tuple(map(str, environment_of(program))),
    }
    return command.model_copy(update={**update, "argv": (str(program), *update["argv"][1:])})


def with_uniform_paths(command: Command) -> Command:
    """Return a command whose words spell the script's directory as the command itself does.

    Words may reach the directory through links, and only this machine knows where those lead.
    """
    real = os.path.realpath(command.directory)
    known = {command.directory, real}
    for text in (*command.argv[1:], *dict(command.env).values(), *dict(command.edits).values()):
        known.update(path for path in _paths_in(text) if os.path.realpath(path) == real)
    update = _worded(command, _moved(known, Path(command.directory)))
    return command.model_copy(update=update)


def _paths_in(text: str) -> Iterator[str]:
    """Yield the absolute paths in a word, each with all its parents."""
    for found in _ABSOLUTE.finditer(text):
        path = Path(found[1])
        yield from map(str, (path, *path.parents))


def _moved(known: set[str], to: Path) -> Callable[[str], str]:
    """Return a function that replaces known paths in a word, alone or as a prefix, by ``to``."""
    longest_first = sorted(known, key=len, reverse=True)
    either = "|".join(map(re.escape, longest_first))
    pattern = re.compile(f"{_BEFORE_A_PATH}(?:{either}){_BEHIND_IT}")
    return lambda word: pattern.sub(lambda _: str(to), word)


def _worded(command: Command, moved: Callable[[str], str]) -> dict[str, Any]:
    """Return the fields of a command that may hold paths, except the program, with paths moved."""
    return {
        "argv": (command.argv[0], *map(moved, command.argv[1:])),
        "env": tuple((name, moved(text)) for name, text in command.env),
        "edits": tuple((name, moved(text)) for name, text in command.edits),
    }


def _found(program: Path) -> None:
    """
    :raises SpecError: if this machine has no such program.
    """
    if shutil.which(program) is None:
        raise SpecError(
            f"there is no program {program}, with which [trainer] command begins; put it there,"
            " under the same path, or begin with {python}, the Python that autoresearch runs on"
        )
