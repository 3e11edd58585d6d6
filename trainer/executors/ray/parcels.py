"""The files that are sent to nodes: the working directory of Ray's runtime environment.

    script.tar      the part of a command's directory that trials may read; each lane unpacks it
    corpus-files/   a corpus of at most 256 MiB; a larger one must be on every node, at its own path

Ray sends the directory to each node once, when a lane opens there, and removes it when no lane is
left. A node hashes the files before a trial reads them, and the script's code again before every
trial. Python cannot import any of these names, since Ray has it search this directory for modules
first.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Mapping
from pathlib import Path

from autoresearch.errors import CorpusError, SpecError
from autoresearch.files import writing
from autoresearch.layout import TRIALS_DIR, nth_trial_id
from trainer.command.tree import code_sha256, pack, unpack
from trainer.corpus.store import (
    HELDOUT,
    META,
    TOKENIZER,
    TRAIN,
    file_sha256,
    is_intact,
    open_corpus,
)
from trainer.executors.base import LaneLost
from trainer.executors.ray.messages import LaneOrder, Needs
from trainer.schema import Command, TrialSpec

MOST_CORPUS_BYTES = 256 << 20
"""Size limit of a corpus that is sent, since Ray's head keeps it in memory meanwhile."""
_SCRIPT = "script.tar"
_CORPUS = "corpus-files"


def fill(
    directory: Path, command: Command | None, corpus: Path | None, campaign: Path = Path()
) -> str:
    """Put what nodes need into a directory for Ray to send; return the hash of the script.

    :param command: the command whose script is sent.
    :param corpus: a prepared corpus, which is sent if it is small.
    :param campaign: the campaign's directory, which is not sent.
    :raises SpecError: if the script cannot be sent.
    :raises SandboxError: if its directory holds more than a script and its data.
    :raises MachineryError: if the disk refuses.
    """
    with writing(f"what nodes are sent, in {directory}", instead="set TMPDIR"):
        if corpus is not None:
            files = [corpus / name for name in (META, TOKENIZER, TRAIN, HELDOUT)]
            there = [file for file in files if file.exists()]  # bytes need no tokenizer
            if sum(file.stat().st_size for file in there) <= MOST_CORPUS_BYTES:
                (directory / _CORPUS).mkdir()
                for file in there:
                    (directory / _CORPUS / file.name).symlink_to(file.resolve())
        if command is None:
            return ""
        with (directory / _SCRIPT).open("wb") as archive:
            pack(command, campaign.resolve() / TRIALS_DIR / nth_trial_id(1), archive)
        return file_sha256(directory / _SCRIPT)


class Received:
    """The files that a lane received, on its node."""

    def __init__(self, sent: Path, home: Path, order: LaneOrder) -> None:
        """Unpack the script, if one was sent.

        :param sent: the directory where Ray has put the files.
        :param home: the lane's home directory, where no other lane writes.
        :raises SpecError: if another script has arrived.
        :raises MachineryError: if the disk refuses.
        """
        self._sent = sent
        self._home = home
        self._order = order
        self._script = script_of(home)
        self._code = ""
        """The hash of the script's code as it was unpacked."""
        self._corpora: dict[str, Path] = {}
        """Corpora that this process has verified, so that it hashes each once."""
        if not order.script_sha256:
            return
        with writing(f"a script under {self._script}", instead="set AUTORESEARCH_DATA_DIR there"):
            if file_sha256(sent / _SCRIPT) != order.script_sha256:
                raise SpecError(
                    f"what arrived as script {order.script_sha256:.16} hashes to something else;"
                    " start Ray on that node again, and repeat the command"
                )
            unpack(sent / _SCRIPT, self._script)
        self._code, _ = code_sha256(self._script, home)

    def localised(
        self, spec: TrialSpec, texts: Mapping[str, bytes], *, has_corpus: bool
    ) -> TrialSpec:
        """Return the spec with this node's paths, whose files are here and verified.

        :param texts: further texts that trials score, by their hashes; they are kept.
        :param has_corpus: whether the head has the corpus. If not, the trial itself reports that.
        :raises CorpusError: if the corpus is not here.
        :raises SpecError: if a command's program is not here.
        :raises LaneLost: if the script has changed, so that the lane must be reopened.
        :raises MachineryError: if the disk refuses.
        """
        changes: dict[str, object] = {}
        if spec.command is not None:
            if code_sha256(self._script, self._home)[0] != self._code:
                raise LaneLost(
                    f"something has changed the script in {self._script}; see what writes there"
                )
            changes["command"] = Needs(spec.command, self._order.python).on_node(self._script)
        elif has_corpus:
            changes["corpus_dir"] = str(self._corpus(spec))
        with writing(f"a text under {self._home}", instead="set AUTORESEARCH_DATA_DIR there"):
            for sha256, data in texts.items():
                self._text(sha256).write_bytes(data)
        changes["texts"] = tuple(
            text.model_copy(update={"path": str(self._text(text.sha256))}) for text in spec.texts
        )
        if spec.device.startswith("cuda"):
            changes["device"] = "cuda"  # a lane sees only its own GPU
        if spec.code_cache is not None:
            key = hashlib.sha256(f"{self._order.head}\0{spec.code_cache}".encode()).hexdigest()
            changes["compile_cache"] = str(self._home.parent.parent / "compiled" / key[:16])
        return spec.model_copy(update=changes)

    def _corpus(self, spec: TrialSpec) -> Path:
        sha256 = spec.corpus_sha256
        for place in (self._sent / _CORPUS, Path(spec.corpus_dir)):
            if sha256 not in self._corpora:
                with contextlib.suppress(CorpusError):
                    corpus = open_corpus(place)
                    if corpus.info.sha256 == sha256 and is_intact(corpus):
                        self._corpora[sha256] = place
        if sha256 not in self._corpora:
            raise CorpusError(
                f"the corpus {sha256:.16} is not on this node, and one of more than"
                f" {MOST_CORPUS_BYTES >> 20} MiB is not sent; put {spec.corpus_dir} on a shared"
                " disk, or copy it there, under the same path"
            )
        return self._corpora[sha256]

    def _text(self, sha256: str) -> Path:
        return self._home / f".text-{sha256}"


def script_of(home: Path) -> Path:
    """Return a lane's script directory, which is outside its home, where trials may read less."""
    return home.parent.parent / "scripts" / home.name
