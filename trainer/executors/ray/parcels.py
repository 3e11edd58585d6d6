"""The files that are sent to nodes: the working directory of Ray's runtime environment.

    script.tar      the part of a command's directory that trials may read; each lane unpacks it
    corpus-files/   a corpus of at most 256 MiB; a larger one must be on every node, at its own path

Ray sends the directory to each node once, when a lane opens there, and removes it when no lane is
left. A node hashes the files before a trial reads them, and a script again before every trial.
Python cannot import any of these names, since Ray has it search this directory for modules first.
"""

from __future__ import annotations

import contextlib
import hashlib
import tempfile
from pathlib import Path

from autoresearch.closing import Closing
from autoresearch.errors import CorpusError, SpecError
from autoresearch.files import writing
from autoresearch.layout import TRIALS_DIR, nth_trial_id
from trainer.command.tree import pack, tree_sha256, unpack
from trainer.corpus.store import HELDOUT, META, TOKENIZER, TRAIN, is_intact, open_corpus
from trainer.executors.base import LaneLost
from trainer.executors.ray.needs import command_here
from trainer.executors.ray.values import TrialOrder
from trainer.spec import Command, TrialSpec

MOST_CORPUS_BYTES = 256 << 20
"""Size limit of a corpus that is sent, since Ray's head keeps it in memory meanwhile."""
_SCRIPT = "script.tar"
_CORPUS = "corpus-files"


class Parcel(Closing):
    """A directory on this machine for Ray to send."""

    def __init__(
        self, command: Command | None = None, corpus: Path | None = None, campaign: Path = Path()
    ) -> None:
        """
        :param command: the command whose script is sent.
        :param corpus: a prepared corpus, which is sent if it is small.
        :param campaign: the campaign's directory, which is not sent.
        :raises SpecError: if the script cannot be sent.
        :raises SandboxError: if its directory holds more than a script and its data.
        :raises MachineryError: if the disk refuses.
        """
        self._folder = tempfile.TemporaryDirectory(prefix="autoresearch-")
        self.directory = Path(self._folder.name)
        self.script_sha256: str | None = None
        """The hash of the archive."""
        with writing(f"what nodes are sent, in {self.directory}", instead="set TMPDIR"):
            if command is not None:
                first_trial = campaign.resolve() / TRIALS_DIR / nth_trial_id(1)
                with (self.directory / _SCRIPT).open("w+b") as archive:
                    pack(command, first_trial, archive)
                    archive.seek(0)
                    self.script_sha256 = hashlib.file_digest(archive, "sha256").hexdigest()
            if corpus is not None:
                self._add_corpus(corpus)

    def _add_corpus(self, corpus: Path) -> None:
        files = [corpus / name for name in (META, TOKENIZER, TRAIN, HELDOUT)]
        there = [file for file in files if file.exists()]  # a corpus of bytes has no tokenizer
        if sum(file.stat().st_size for file in there) <= MOST_CORPUS_BYTES:
            (self.directory / _CORPUS).mkdir()
            for file in there:
                (self.directory / _CORPUS / file.name).symlink_to(file.resolve())

    def close(self) -> None:
        """Remove the directory."""
        self._folder.cleanup()


class Received:
    """The files that a lane received, on its node."""

    def __init__(self, sent: Path, home: Path, compiled: Path) -> None:
        """
        :param sent: the directory where Ray has put the files.
        :param home: the lane's home directory, where no other lane writes.
        :param compiled: the node's directory for code that trials compile.
        """
        self._sent = sent
        self._home = home
        self._script = script_of(home)
        self._compiled = compiled
        self._script_sha256 = ""
        """The hash of the script as it was unpacked."""
        self._corpora: dict[str, Path] = {}
        """Corpora that this process has verified, so that it hashes each once."""

    def unpack_script(self, sha256: str) -> None:
        """Unpack the script whose archive has this hash.

        :raises SpecError: if the archive that arrived has another hash.
        :raises MachineryError: if the disk refuses.
        """
        with writing(f"a script under {self._script}", instead="set AUTORESEARCH_DATA_DIR there"):
            archive = self._sent / _SCRIPT
            with archive.open("rb") as file:
                if hashlib.file_digest(file, "sha256").hexdigest() != sha256:
                    raise SpecError(
                        f"what arrived as script {sha256:.16} hashes to something else; start Ray"
                        " on that node again, and repeat the command"
                    )
            self._script.parent.mkdir(exist_ok=True)
            unpack(archive, self._script)
            self._script_sha256 = tree_sha256(self._script)

    def keep_text(self, sha256: str, data: bytes) -> None:
        """Keep a further text that trials score.

        :raises CorpusError: if its hash differs.
        :raises MachineryError: if the disk refuses.
        """
        if hashlib.sha256(data).hexdigest() != sha256:
            raise CorpusError(
                f"what arrived as text {sha256:.16} hashes to something else; repeat the command"
            )
        with writing(f"a text under {self._home}", instead="set AUTORESEARCH_DATA_DIR there"):
            self._text(sha256).write_bytes(data)

    def localised(self, order: TrialOrder) -> TrialSpec:
        """Return the spec with this node's paths, whose files are here and verified.

        :raises CorpusError: if the corpus is not here.
        :raises SpecError: if a command's program is not here.
        :raises LaneLost: if the script has changed, so that the lane must be reopened.
        """
        spec = order.spec
        changes: dict[str, object] = {}
        if spec.command is not None:
            self._check_script()
            changes["command"] = command_here(spec.command, order.program, self._script)
        else:
            if order.has_corpus:
                changes["corpus_dir"] = str(self._corpus(spec))
            changes["texts"] = tuple(
                text.model_copy(update={"path": str(self._text(text.sha256))})
                for text in spec.texts
            )
        if spec.device.startswith("cuda"):
            changes["device"] = "cuda"  # a lane sees only its own GPU
        if spec.code_cache is not None:
            changes["compile_cache"] = str(self._compiled / Path(spec.code_cache).name)
        return spec.model_copy(update=changes)

    def _check_script(self) -> None:
        with contextlib.suppress(OSError):
            if tree_sha256(self._script) == self._script_sha256:
                return
        raise LaneLost(f"something has changed the script in {self._script}; see what writes there")

    def _corpus(self, spec: TrialSpec) -> Path:
        for place in (self._sent / _CORPUS, Path(spec.corpus_dir)):
            if spec.corpus_sha256 not in self._corpora:
                with contextlib.suppress(CorpusError):
                    corpus = open_corpus(place)
                    if corpus.info.sha256 == spec.corpus_sha256 and is_intact(corpus):
                        self._corpora[spec.corpus_sha256] = place
        if spec.corpus_sha256 not in self._corpora:
            raise CorpusError(
                f"the corpus {spec.corpus_sha256:.16} is not on this node, and one of more than"
                f" {MOST_CORPUS_BYTES >> 20} MiB is not sent; put {spec.corpus_dir} on a shared"
                " disk, or copy it there, under the same path"
            )
        return self._corpora[spec.corpus_sha256]

    def _text(self, sha256: str) -> Path:
        return self._home / f".text-{Path(sha256).name}"


def script_of(home: Path) -> Path:
    """Return a lane's script directory, which is outside its home, where trials may read less."""
    return home.parent.parent / "scripts" / home.name
