"""Board of all campaigns that the page shows: finds, polls and draws them."""

import asyncio
import tempfile
import threading
import time
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from autoresearch.campaign_files import has_file
from autoresearch.code import package_root
from autoresearch.errors import AutoresearchError, MachineryError
from autoresearch.layout import JOURNAL_FILE, REPORT_PAGE
from autoresearch.program import quote
from trajectory.live.follower import Follower
from trajectory.live.growing_files import DeviceTail

DRAWING_S = 600.0
"""Timeout of a drawing in seconds. The page yields to trials, beside which 30 s become minutes."""


class Drawer:
    """Draws the reports of campaigns, and keeps each page until its campaign has more rows.

    Drawing takes seconds and much memory, so it happens in a process of its own, one at a time.
    """

    def __init__(self, command: Sequence[str], environ: Mapping[str, str] | None = None) -> None:
        """
        :param command: draws a report; ``--campaign DIR --out DIR`` is appended.
        :param environ: the command's environment; by default this process's.
        """
        self._command = tuple(command)
        self._environ = environ
        self._one_at_a_time = asyncio.Lock()
        self._drawn: dict[Path, tuple[int, bytes]] = {}
        """Number of rows and page, by campaign."""

    async def page(self, directory: Path, rows: int) -> bytes:
        """Return the HTML page of a campaign's report.

        A cancelled call ends the drawing.

        :param rows: rows of its journal now.
        :raises MachineryError: if the drawing fails or takes longer than :data:`DRAWING_S`.
        """
        async with self._one_at_a_time:
            if self._drawn.get(directory, (-1, b""))[0] != rows:
                self._drawn[directory] = rows, await self._draw(directory)
            return self._drawn[directory][1]

    async def _draw(self, directory: Path) -> bytes:
        with tempfile.TemporaryDirectory(prefix="autoresearch-report-") as folder:
            place = ("--campaign", str(directory), "--out", folder)
            # Not anyio.run_process: where asyncio cancels its task, it waits for the process.
            process = await asyncio.create_subprocess_exec(
                *self._command,
                *place,
                env=self._environ,
                cwd=package_root(),
                stdin=DEVNULL,
                stdout=DEVNULL,
                stderr=PIPE,
            )
            try:
                async with asyncio.timeout(DRAWING_S):
                    _, said = await process.communicate()
            except TimeoutError:
                raise MachineryError(
                    f"drawing the report took longer than {DRAWING_S:.0f} s and was stopped; draw "
                    f"it with: autoresearch report --campaign {quote(directory)}"
                ) from None
            finally:
                if process.returncode is None:
                    process.kill()
                    await process.wait()
            if process.returncode != 0:
                lines = said.decode("utf-8", "replace").strip().splitlines()
                raise MachineryError(lines[-1] if lines else "drawing the report failed")
            return (Path(folder) / REPORT_PAGE).read_bytes()


POLL_S = 0.5
FIND_EVERY = 10
"""Polls between two searches for new campaigns."""
MESSAGE_CHARACTERS = 300


class WatchedCampaign:
    """One campaign on the board."""

    def __init__(self, name: str, directory: Path) -> None:
        self.name = name
        self.follower = Follower(directory)
        self.device = DeviceTail(directory)
        self.error: str | None = None
        """Reason why it can no longer be followed, in one sentence."""

    def poll(self) -> None:
        """Read on in its files."""
        try:
            self.follower.poll()
            self.error = None
        except AutoresearchError as error:
            self.error = readable(str(error))
        except Exception as error:  # noqa: BLE001 (the others are still followed)
            said = " ".join(f"{type(error).__name__}: {error}".split())
            self.error = f"it cannot be followed ({readable(said[:MESSAGE_CHARACTERS])})"
        self.device.poll()


class Board:
    """The campaigns, by name. :meth:`following` keeps them current; request handlers only read."""

    def __init__(
        self,
        places: Iterable[Path],
        draw: Sequence[str],
        environ: Mapping[str, str] | None = None,
    ) -> None:
        """Make a board without campaigns.

        :param places: campaigns, or directories that contain campaigns.
        :param draw: the command that draws a report, and its environment; see :class:`Drawer`.
        """
        self.drawer = Drawer(draw, environ)
        self._places = [place.absolute() for place in places]
        self._polls = 0
        self._polled_s = time.monotonic()
        self.lock = threading.Lock()
        """Held while campaigns are polled, and by anything that reads one of them."""
        self.campaigns: dict[str, WatchedCampaign] = {}

    def poll(self) -> None:
        """Search for campaigns, and read new rows of each."""
        if self._polls % FIND_EVERY == 0:
            self._find()
        self._polls += 1
        for watched in self.campaigns.values():
            with self.lock:
                watched.poll()

    def _find(self) -> None:
        """Add new campaigns, and drop removed ones."""
        found: dict[Path, None] = {}
        for place in self._places:
            if _holds_campaign(place):
                found[place] = None
                continue
            with suppress(OSError):
                # A folder that is still being created has a name that begins with a dot.
                visible = [child for child in place.iterdir() if not child.name.startswith(".")]
                found |= dict.fromkeys(sorted(filter(_holds_campaign, visible)))
        campaigns = {
            name: watched
            for name, watched in self.campaigns.items()
            if watched.follower.directory in found
        }
        known = {watched.follower.directory for watched in campaigns.values()}
        for directory in found:
            if directory not in known:
                name = stem = readable(directory.name) or "campaign"
                number = 1
                while name in campaigns:
                    number += 1
                    name = f"{stem}-{number}"
                campaigns[name] = WatchedCampaign(name, directory)
        self.campaigns = campaigns

    @asynccontextmanager
    async def following(self) -> AsyncIterator[None]:
        """Poll in the background while the block runs."""
        task = asyncio.create_task(self._follow())
        try:
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def _follow(self) -> None:
        while True:
            await asyncio.to_thread(self.poll)
            self._polled_s = time.monotonic()
            await asyncio.sleep(POLL_S)

    def silent_s(self) -> float:
        """Return the seconds since all campaigns were last polled."""
        return time.monotonic() - self._polled_s


def readable(name: str) -> str:
    """Return a file's name as valid text, with a replacement character for bytes that are not
    UTF-8."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _holds_campaign(directory: Path) -> bool:
    return has_file(directory, JOURNAL_FILE)
