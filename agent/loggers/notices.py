"""Send notices to people, through any service that Apprise knows, and never at the loop's expense.

Each message is sent in a thread of its own, so a service that is down or slow delays nothing. The
addresses hold secrets: :mod:`autoresearch.safe_text` knows them, Apprise's own log is silenced, and
messages name a service only by its kind.
"""

from __future__ import annotations

import logging
import re
import shlex
import threading
import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from agent.search.trial import Watcher
from agent.settings.environment import read_environment
from autoresearch.errors import SettingsError
from autoresearch.program import install_command
from autoresearch.safe_text import plain, redact
from trajectory.rows import IterationRow

if TYPE_CHECKING:
    from apprise import Apprise

CLOSE_S = 20.0
"""Seconds that the end of a loop waits for messages under way."""


class Notifier:
    """Sends notices about one campaign to every address."""

    def __init__(self, urls: Sequence[str] = (), *, keeps: bool = False) -> None:
        """Parse the addresses, and those of AUTORESEARCH_NOTIFY_URLS.

        :param keeps: whether each kept config is worth a notice.
        :raises SettingsError: if one is not an address of a service, or Apprise is not installed.
        """
        all_urls = [*urls, *(read_environment().notify_urls or "").split()]
        self.keeps = keeps and bool(all_urls)
        self._services = [_service(url, number) for number, url in enumerate(all_urls, start=1)]
        self._sending: list[threading.Thread] = []
        self._failed: set[str] = set()

    def send(self, directory: Path, title: str, body: str, then: str = "top --campaign") -> None:
        """Send a notice about a campaign, without waiting.

        :param then: the command, to be completed by the directory, that shows more.
        """
        command = f"autoresearch {then} {shlex.quote(str(directory))}"
        title = _quiet(redact(f"{directory.resolve().name}: {title}"))
        body = "\n".join(map(_quiet, redact(f"{body}\n{command}").split("\n")))
        for number, service in enumerate(self._services, start=1):
            kind = f"{service[0].service_name} (address {number})"
            thread = threading.Thread(
                target=self._deliver, args=(service, title, body), name=kind, daemon=True
            )
            self._sending.append(thread)
            thread.start()

    def close(self, wait_s: float = CLOSE_S) -> str:
        """Wait for messages under way; return which services failed, in one sentence, or nothing.

        :param wait_s: most seconds to wait for all of them.
        """
        until = time.monotonic() + wait_s
        for thread in self._sending:
            thread.join(max(0.0, until - time.monotonic()))
            if thread.is_alive():
                self._failed.add(thread.name)
        if not self._failed:
            return ""
        return f"some notices did not reach {', '.join(sorted(self._failed))}; check the address"

    def _deliver(self, service: Apprise, title: str, body: str) -> None:
        try:
            is_sent = bool(service.notify(body=body, title=title))
        except (Exception, SystemExit):  # noqa: BLE001 (its words may hold the address)
            is_sent = False
        if not is_sent:
            self._failed.add(threading.current_thread().name)


_MENTION = re.compile(r"@(?=everyone|here|channel|all|room|[!&]?\d)|<(?=[!@#])", re.IGNORECASE)


def _quiet(text: str) -> str:
    """Return a line in which no service finds a mention: a model's words must call nobody."""
    return _MENTION.sub(lambda found: f"{found[0]}\u200b", plain(text))


class KeepNotices(Watcher):
    """Reports kept configs."""

    def __init__(self, notifier: Notifier, directory: Path) -> None:
        self._notifier = notifier
        self._directory = directory

    def iteration_ended(self, row: IterationRow) -> None:
        if self._notifier.keeps and row.decision.action == "keep":
            title = f"iteration {row.iter} kept"
            self._notifier.send(self._directory, title, row.decision.explanation)


def _service(url: str, number: int) -> Apprise:
    if find_spec("apprise") is None:
        raise SettingsError(
            f"--notify needs Apprise, which is not installed; run: {install_command('notify')}"
        )
    from apprise import Apprise  # noqa: PLC0415 (optional, and slow to load)

    logger = logging.getLogger("apprise")
    logger.propagate = False
    logger.handlers = [logging.NullHandler()]
    service = Apprise()
    if not service.add(url):
        raise SettingsError(
            f"address {number} of --notify and AUTORESEARCH_NOTIFY_URLS is not one that Apprise "
            "knows; write one like ntfy://TOPIC or mailto://USER:PASSWORD@gmail.com"
        )
    return service
