import json
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from email import message_from_bytes
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from aiosmtpd.controller import Controller

from agent.loggers.notices import Notifier
from autoresearch.errors import SettingsError
from tests.support.campaigns import Toy
from tests.support.ports import free_port
from tests.support.waiting import wait_until
from trajectory.proposals import Proposal
from trajectory.queue import add

pytestmark = pytest.mark.filterwarnings("ignore:.imghdr.:DeprecationWarning")  # Apprise imports it
SECRET = "Tok3nOfTheHookThatNobodyMaySee"


@contextmanager
def http_server() -> Iterator[tuple[int, list[dict[str, Any]]]]:
    """Run a web hook, and yield its port and the messages it receives."""
    received: list[dict[str, Any]] = []

    class Hook(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            received.append({"path": self.path, **json.loads(body)})
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Hook) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port, received
        server.shutdown()


class Mailbox:
    """Keep the mails that an SMTP server receives."""

    def __init__(self) -> None:
        self.received: list[bytes] = []

    async def handle_DATA(self, _server: Any, _session: Any, envelope: Any) -> str:  # noqa: N802
        self.received.append(envelope.content)
        return "250 OK"


def test_a_notice_arrives_and_a_dead_service_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mailbox = Mailbox()
    mail = Controller(mailbox, hostname="127.0.0.1", port=free_port())
    mail.start()
    try:
        with http_server() as (port, received):
            monkeypatch.setenv(
                "AUTORESEARCH_NOTIFY_URLS",
                f"mailto://127.0.0.1:{mail.port}?from=a@x.example&to=b@y.example&mode=insecure "
                f"json://user:{SECRET}@127.0.0.1:{free_port()}/dead",
            )
            notifier = Notifier([f"json://127.0.0.1:{port}/{SECRET}"])
            notifier.send(tmp_path, "stopped", f"the disk is full; {SECRET}", "status")
            said = notifier.close()
    finally:
        mail.stop()
    [hook], [raw] = received, mailbox.received
    assert hook["path"] == f"/{SECRET}"
    assert hook["title"].startswith(tmp_path.name)
    assert f"autoresearch status {tmp_path}" in hook["message"]
    assert SECRET not in hook["message"]
    message = message_from_bytes(raw)
    assert tmp_path.name in str(message["Subject"])
    assert "3" in said
    assert SECRET not in said


@pytest.mark.parametrize("call", ["@everyone", "@here", "<@123>", "<!channel>", "@Channel"])
def test_a_notice_calls_nobody_and_holds_no_escape(tmp_path: Path, call: str) -> None:
    with http_server() as (port, received):
        notifier = Notifier([f"json://127.0.0.1:{port}/a"])
        notifier.send(
            tmp_path / f"x {call}", f"kept {call}", f"one {call}\x1b[31m\ntwo a@b.example"
        )
        assert notifier.close() == ""
    assert call not in received[0]["title"] + received[0]["message"]
    assert "\x1b" not in received[0]["message"]
    assert "\ntwo a@b.example\n" in received[0]["message"]


def test_an_address_of_no_service_is_refused_without_its_text() -> None:
    with pytest.raises(SettingsError) as refused:
        Notifier([f"nosuchservice://{SECRET}"])
    assert SECRET not in str(refused.value)


@pytest.mark.slow
def test_the_loop_sends_its_end_keeps_and_trouble_and_no_address(tmp_path: Path) -> None:
    toy = Toy(tmp_path)
    assert toy.loop(0).returncode == 0
    better = Proposal(changes={"lr": 0.02, "beta2": 0.98}, reason="")
    add(toy.campaign, better, "ada")
    with http_server() as (port, received):
        urls = f"--notify=json://127.0.0.1:{port}/{SECRET}", f"--notify=json://[::1]:9/{SECRET}"
        done = toy.loop(1, *urls, "--notify-keeps")
        assert done.returncode == 0, done.stderr
        assert toy.iterations()[0]["decision"]["action"] == "keep"
        assert len(received) == 2
        received.clear()
        (toy.campaign / "pause").touch()
        running = toy.start(2, *urls)
        wait_until(lambda: bool(received) or running.poll() is not None)
        assert [one["title"] for one in received] == ["toy: paused"]
        (toy.campaign / "pause").unlink()
        output, _ = running.communicate()
        assert running.returncode == 0, output
        assert len(received) == 2
        received.clear()
        shutil.rmtree(toy.campaign / "in_flight")
        (toy.campaign / "in_flight").write_text("no folder, so no iteration can begin")
        done = toy.loop(3, *urls)
        assert done.returncode == 1
        assert len(received) == 1
    assert [row["event"] for row in toy.rows() if row["kind"] == "event"][-1] == "stopped"
    assert toy.run("status", str(toy.campaign)).returncode == 1
    files = [file.read_bytes() for file in toy.campaign.rglob("*") if file.is_file()]
    assert not any(SECRET.encode() in one for one in files)
    assert SECRET not in done.stdout + done.stderr
