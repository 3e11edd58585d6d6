"""A spec as it must read on a node, and what has to be brought there first."""

from __future__ import annotations

import contextlib
import hashlib
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from autoresearch.errors import CorpusError, MachineryError, SpecError
from trainer.command.script import code_sha256
from trainer.command.tree import Tree, Trees
from trainer.corpus.store import META, open_corpus
from trainer.executors.ray.needs import in_one_spelling, portable_program
from trainer.executors.ray.parcels import CORPUS_FILES, TEXT_FILE
from trainer.executors.ray.scripts import CONTENTS, MANIFEST
from trainer.executors.ray.values import Localised, Opened, said
from trainer.spec import Command, ScoredText, TrialSpec

_PIECE_BYTES = 4 << 20
"""Of a file, in one question: it goes through Ray's object store, which is kept small."""
_HASHING_S = 600.0
"""A node may have to read a corpus of tens of gigabytes to know it."""
_SENDINGS = 5
"""Of a script, where each time a file was written over between its hash and its sending."""


class Asked(Protocol):
    """Who can be asked on the node."""

    def ask(self, method: str, *arguments: object, within_s: float) -> bytes: ...


class Shipping:
    """What one node is sent, by whichever of its lanes needs it first; the others wait for it.

    A corpus, a text or a script is asked for by its hash and sent where it is not there; the node
    hashes what came before it says that it has it.

    A script's directory is listed once, and that copy is what the node's trials have until its code
    is another: what else is written there meanwhile, a log of the very night, makes no new script.
    """

    def __init__(self) -> None:
        self._door = threading.Lock()
        self._there: dict[tuple[str, str], str] = {}
        """Paths on the node, by kind and hash."""
        self._trees = Trees()
        self._listed: tuple[str, str, Tree] | None = None
        """Of which command, with which code, and what there was."""
        self._commands: dict[tuple[str, str], Command] = {}
        """With the node's paths, by hash of the script and as they are here."""

    def localised(self, spec: TrialSpec, node: Asked, trial_dir: Path) -> TrialSpec:
        """The spec with the node's paths, whose files are there.

        :param trial_dir: of the trial here.
        :raises CorpusError: where what would have to be sent is not what it is called.
        :raises SpecError: where a command's script cannot be sent, or its program is not there.
        :raises LaneLost: where the node goes meanwhile.
        """
        changes: dict[str, object] = {}
        if spec.command is not None:
            changes["command"] = self._command(spec.command, node, trial_dir)
        else:
            changes["corpus_dir"] = self._corpus(spec, node)
            changes["texts"] = tuple(self._text(text, node) for text in spec.texts)
        if spec.device.startswith("cuda"):
            changes["device"] = "cuda"  # a lane sees its own GPU and no other
        if spec.code_cache is not None:
            key = hashlib.sha256(f"{socket.gethostname()}\0{spec.code_cache}".encode()).hexdigest()
            changes["compile_cache"] = node.ask("cache", key[:16], within_s=20.0).decode()
        return spec.model_copy(update=changes)

    def _corpus(self, spec: TrialSpec, node: Asked) -> str:
        here = Path(spec.corpus_dir)
        if not (here / META).is_file():
            return spec.corpus_dir  # the trial says so itself
        with self._door:
            return self._bring("corpus", spec.corpus_sha256, node, _pieces_of_corpus(here), here)

    def _text(self, text: ScoredText, node: Asked) -> ScoredText:
        here = Path(text.path)
        with self._door:
            there = self._bring("text", text.sha256, node, _pieces(here, TEXT_FILE), here)
        return text.model_copy(update={"path": there})

    def _command(self, command: Command, node: Asked, trial_dir: Path) -> Command:
        with self._door:
            tree, there = self._script(command, node, trial_dir)
            told = command.model_dump_json()
            if (tree.sha256, told) not in self._commands:
                sent = in_one_spelling(command).model_dump_json()
                answer = node.ask(
                    "command", sent, portable_program(command), there, within_s=_HASHING_S
                )
                self._commands[tree.sha256, told] = _localised(answer)
            return self._commands[tree.sha256, told]

    def _script(self, command: Command, node: Asked, trial_dir: Path) -> tuple[Tree, str]:
        """The script's directory, and its path on the node.

        :raises SpecError: where it cannot be sent, or is written over again and again meanwhile.
        """
        for left in reversed(range(_SENDINGS)):
            try:
                tree = self._tree(command, trial_dir)
                pieces = _pieces_of_script(tree)
                return tree, self._bring("script", tree.sha256, node, pieces, tree.directory)
            except SpecError:
                self._listed, self._trees = None, Trees()  # a clock's tick may hold two writes
                if not left:
                    raise
        raise AssertionError("the last one returns or raises")

    def _tree(self, command: Command, trial_dir: Path) -> Tree:
        told, directory = command.model_dump_json(), Path(command.directory)
        campaign = trial_dir.parent.parent
        known = self._listed
        if known is None or known[:2] != (told, code_sha256(directory, campaign)[0]):
            if known is not None:
                self._there.pop(("script", known[2].sha256), None)  # its lane lets go of it
            tree = self._trees.of(command, trial_dir)
            # The code is hashed behind the list: a list of a save that was taken back at once does
            # not hold.
            known = self._listed = told, code_sha256(directory, campaign)[0], tree
        return known[2]

    def _bring(
        self,
        kind: str,
        sha256: str,
        node: Asked,
        pieces: Iterator[tuple[str, bytes]],
        here: Path,
    ) -> str:
        """The path on the node."""
        if (kind, sha256) not in self._there:
            found = node.ask("find", kind, sha256, within_s=_HASHING_S)
            if not found:
                for name, piece in pieces:
                    _accepted(node.ask("take", sha256, name, piece, within_s=60.0))
                _accepted(node.ask("keep", kind, sha256, here.name, within_s=_HASHING_S))
                found = node.ask("find", kind, sha256, within_s=_HASHING_S)
            if not found:
                raise MachineryError(
                    f"{kind} {sha256:.16} was sent to a node and is gone from there at once; see"
                    " what else clears its AUTORESEARCH_DATA_DIR"
                )
            self._there[kind, sha256] = found.decode()
        return self._there[kind, sha256]

    def forget(self) -> None:
        """The node went away: it may come back without what it had."""
        with self._door:
            self._there.clear()
            self._commands.clear()


def _accepted(answer: bytes) -> None:
    """
    :raises AutoresearchError: what the node said against it.
    """
    opened = said(Opened, answer, "the lane")
    if opened.refusal is not None:
        raise opened.refusal.as_exception()


def _localised(answer: bytes) -> Command:
    """
    :raises AutoresearchError: what the node said against it.
    """
    localised = said(Localised, answer, "the lane")
    if localised.refusal is not None:
        raise localised.refusal.as_exception()
    if localised.command is None:
        raise MachineryError("the lane answered with no command and no reason")
    return localised.command


def _pieces_of_script(tree: Tree) -> Iterator[tuple[str, bytes]]:
    yield MANIFEST, tree.manifest.encoded()
    for piece in tree.contents():
        yield CONTENTS, piece


def _pieces_of_corpus(directory: Path) -> Iterator[tuple[str, bytes]]:
    open_corpus(directory)
    for name in CORPUS_FILES:
        with contextlib.suppress(FileNotFoundError):  # a corpus of bytes has no tokenizer
            yield from _pieces(directory / name, name)


def _pieces(path: Path, name: str) -> Iterator[tuple[str, bytes]]:
    try:
        with path.open("rb") as file:
            while piece := file.read(_PIECE_BYTES):
                yield name, piece
    except FileNotFoundError:
        raise
    except OSError as error:
        raise CorpusError(f"cannot read {path}: {error.strerror}; prepare it again") from error
