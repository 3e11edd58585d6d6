"""Messages between a driver and its lanes on other machines, which Ray pickles.

So whoever controls one of the machines can run code on the others, as with any use of Ray. What a
trial wrote crosses as bytes, and its result as the value that the node's executor has checked.

One message is a command of the head, with what must be on a node for it, and its paths there. The
script's directory is sent. The Python that runs autoresearch, and any program beside it, is the
node's own. Any other program, and each path that the menu declares, must be there under the same
path as on the head.
"""

from __future__ import annotations

import importlib.util
import re
import shutil
import socket
import sys
from dataclasses import dataclass
from pathlib import Path

from autoresearch.errors import AutoresearchError, SpecError
from autoresearch.values import Frozen
from trainer.command.program import environment_of
from trainer.schema import Command, Measured, TrialFailed

PIECE_BYTES = 4 << 20
"""Size limit of an answer's part of a trial's file."""


@dataclass(frozen=True, slots=True)
class LaneOrder:
    """Settings for opening a lane on its node."""

    token: str
    """The unique name of this opening, which also names its directory there."""
    entry: str
    """``module:function`` that a trial runs."""
    lease_s: float
    """Time without a request from the driver after which the node ends the trial and the lane."""
    head: str = socket.gethostname()
    """The head's host name, which keeps the caches of several heads apart."""
    python: str = sys.executable
    """The head's Python."""
    allow_unsandboxed: bool = False
    share: int = 0
    """The index of this lane's share of the node's cores."""
    shares: int | None = None
    """The number of shares; None: this lane has all cores."""
    script_sha256: str = ""
    """The hash of the archive that was sent for a command; empty for the built-in trainer."""


class NodeFacts(Frozen):
    """Facts about a machine of the cluster, found by a process on it."""

    code: str
    """Version and hash of this product's code."""
    torch: str
    cpu: str
    """The processor's own name."""
    gpus: tuple[str, ...]
    """The visible GPUs' own names; none on CPU."""
    cores: int
    """The number of cores that a process may use."""
    memory_gib: float
    confines: bool
    """Whether its kernel can confine a trial to its directory."""
    sandbox: str
    directory: str
    """The directory for running trials."""
    disk: str
    """The reason why nothing can be written there; empty if it can."""
    free_gib: float
    lacks: str = ""
    """The missing ones of a command's needs, and what to do; empty if nothing is missing."""

    def kind(self, device: str) -> str:
        """Return the kind of the machine: equal kinds are alike for trials on ``device``."""
        if device.startswith("cuda"):
            return self.gpus[0] if self.gpus else "no GPU"
        return self.cpu


@dataclass(frozen=True, slots=True)
class Watched:
    """The state of a trial."""

    curve: bytes
    """The new part of its curve."""
    end: Measured | TrialFailed | AutoresearchError | None = None
    """Its result, or the error with which it ended without one; None while it runs or while more
    of its curve is left."""
    log: bytes = b""
    """Its whole log, at its end."""


@dataclass(frozen=True, slots=True)
class Machine:
    """A node of the cluster, as Ray reports it."""

    id: str
    """The node's id, which changes with every start of Ray there."""
    name: str
    cpus: float
    gpus: float
    address: str = ""


_BEFORE_A_PATH = r"""(?:(?<![^\s'"=:,;|{@])|(?<=^-[A-Za-z]))"""
"""The context before a path ``/p`` in a word: ``--root=/p``, ``/a:/p``, ``{big:/p/a|/p/b}`` and
``-I/p``, but not ``/mnt/p``."""
_BEHIND_IT = r"""(?![^\s'"/:,;|}])(?!/\.\.(?:/|$))"""
"""The context after a path: not ``/p/../q``, whose target on the node is unknown here."""


@dataclass(frozen=True)
class Needs:
    """A command as it runs on the head."""

    command: Command
    python: str = sys.executable
    """The head's Python."""

    def lacking(self) -> str:
        """Return what is missing on this machine, and what to do; empty if nothing is."""
        command = self.command
        is_sent = command.programs == command.argv[:1] and Path(command.argv[0]).is_relative_to(
            command.directory
        )
        program = self._program(command.argv[0], None)
        if not is_sent and shutil.which(program) is None:
            return _no_program(program)
        for path in command.reads:
            if not Path(path).exists():
                return (
                    f"there is no {path}, which [trainer] reads names; put it there, under the"
                    " same path"
                )
        for name in command.preload:
            if importlib.util.find_spec(name.partition(".")[0]) is None:
                return (
                    f"its Python, {sys.executable}, has no {name}, which [trainer] preload names;"
                    " install it there"
                )
        return ""

    def on_node(self, tree: Path) -> Command:
        """Return the command with this machine's paths, in argv, environment and edits.

        :param tree: the script's directory here.
        :raises SpecError: if the program is not here.
        """
        command = self.command
        program = self._program(command.argv[0], tree)
        if shutil.which(program) is None:
            raise SpecError(_no_program(program))
        pattern = re.compile(_BEFORE_A_PATH + re.escape(command.directory) + _BEHIND_IT)

        def moved(word: str) -> str:
            return pattern.sub(lambda _: str(tree), word)

        return command.model_copy(
            update={
                "argv": (str(program), *map(moved, command.argv[1:])),
                "env": tuple((name, moved(text)) for name, text in command.env),
                "edits": tuple((name, moved(text)) for name, text in command.edits),
                "directory": str(tree),
                "programs": tuple(map(str, environment_of(program, tree))),
            }
        )

    def _program(self, named: str, tree: Path | None) -> Path:
        """Return this machine's path of a program: its own Python or one beside it, one that came
        with the script, or the same path."""
        program, python, ours = Path(named), Path(self.python), Path(sys.executable)
        if program.parent == python.parent:
            return ours if program == python else ours.parent / program.name
        if tree is not None and program.is_relative_to(self.command.directory):
            sent = tree / program.relative_to(self.command.directory)
            if sent.exists():
                return sent
        return program


def _no_program(program: Path) -> str:
    return (
        f"there is no program {program}, with which [trainer] command begins; put it there,"
        " under the same path, or begin with {python}, the Python that autoresearch runs on"
    )
