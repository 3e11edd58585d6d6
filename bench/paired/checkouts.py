"""A version of this repository in a place of its own, run with the libraries installed here."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from autoresearch.errors import SettingsError

HERE = Path(__file__).parents[2]
_GLANCE_S = 3.0
_RUN = "import sys; from agent.cli import main; sys.argv[0] = 'autoresearch'; sys.exit(main())"


@dataclass(frozen=True, slots=True)
class Checkout:
    """One version."""

    name: str
    directory: Path

    @classmethod
    def made(cls, name: str, commit: str, work: Path) -> Checkout:
        """The files of a commit, where they are not there yet.

        Its interpreter finds the commit's packages and the libraries of this environment, and not
        the packages that are installed here from another version.

        :raises SettingsError: where this repository has no such commit.
        """
        directory = work.absolute() / f"{name}-{full_hash(commit)[:12]}"
        if not (directory / ".whole").exists():
            archive = _git("archive", "--format=zip", commit)
            with zipfile.ZipFile(io.BytesIO(archive)) as files:
                files.extractall(directory)
            venv.create(directory / ".venv", symlinks=True, with_pip=False)
            (site,) = (directory / ".venv" / "lib").glob("python3*/site-packages")
            lines = [str(directory), sysconfig.get_path("purelib")]
            (site / "versions.pth").write_text("\n".join(dict.fromkeys(lines)) + "\n")
            (directory / ".whole").touch()
        return cls(name, directory)

    def loop(self, campaign: Path, *options: str, enough: Callable[[], bool]) -> None:
        """``autoresearch loop`` as this version has it, until it ends or is stopped.

        :param enough: asked every few seconds; once it says so, the loop is stopped.
        :raises SettingsError: where it ended otherwise than well.
        """
        if enough():
            return
        command = [str(self.directory / ".venv/bin/python"), "-c", _RUN, "loop"]
        command += ["--campaign", str(campaign.absolute()), *options]
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        stopped = False
        with subprocess.Popen(
            command, cwd=self.directory, env=environment, stdout=sys.stderr
        ) as night:
            while (code := _ended(night)) is None:
                if not stopped and enough():
                    stopped = True
                    night.terminate()
        if code and not stopped:
            raise SettingsError(
                f"the loop of {self.name} in {self.directory} ended with exit code {code}; what "
                "it said stands above; the same command goes on"
            )


def _ended(night: subprocess.Popen[bytes]) -> int | None:
    """Its exit code; None where it still runs after a few seconds."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        return night.wait(_GLANCE_S)
    return None


def full_hash(commit: str) -> str:
    """The whole name of a commit.

    :raises SettingsError: where this repository has no such commit.
    """
    return _git("rev-parse", "--verify", f"{commit}^{{commit}}").decode().strip()


def _git(*arguments: str) -> bytes:
    ended = subprocess.run(["git", "-C", str(HERE), *arguments], capture_output=True, check=False)
    if ended.returncode:
        why = ended.stderr.decode(errors="replace").strip()
        raise SettingsError(
            f"git {arguments[0]} of {arguments[-1]} failed: {why}; name a commit that this "
            "repository has"
        )
    return ended.stdout
