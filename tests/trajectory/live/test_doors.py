"""Requests to the page from anything but a browser on this machine."""

import asyncio
import os
import socket
from pathlib import Path

import httpx2
import pytest
from starlette.requests import HTTPConnection

from tests.support.waiting import wait_until
from tests.trajectory.live.server import TOKEN, Server, serving, simulated, write_campaign
from trajectory.live.access import Access
from trajectory.live.app import Gate


def asked(server: Server, path: str = "/api/campaigns", **headers: str) -> httpx2.Response:
    """Request a path with these headers, whose underscores become hyphens."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return httpx2.get(server.url + path, headers=named, timeout=None)


def raw(server: Server, request: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", server.port), timeout=None) as connection:
        connection.sendall(request)
        return connection.recv(1 << 16)


def test_no_host_header_opens_the_gate(guarded: Server) -> None:
    for host in (b"x/healthz?", b"x/login?", b"x/healthz#", b"[::1]/healthz?"):
        request = b"GET /api/campaigns HTTP/1.1\r\nHost: " + host + b"\r\n\r\n"
        status = raw(guarded, request).split(b"\r\n")[0]
        assert status.split()[1] in {b"400", b"401"}


def test_the_gate_does_not_look_at_what_the_host_header_makes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers: list[int] = []

    async def send(message: dict[str, object]) -> None:
        if message["type"] == "http.response.start":
            answers.append(int(str(message["status"])))

    async def receive() -> dict[str, object]:
        return {"type": "http.request"}

    async def inside(*_: object) -> None:
        answers.append(200)

    monkeypatch.setattr(HTTPConnection, "url", property(lambda _: pytest.fail("it looked")))
    gate = Gate(inside, Access(TOKEN))  # type: ignore[arg-type]
    for path in ("/api/campaigns", "/healthz", "//healthz", "/healthz/", "/static/../api"):
        scope = {
            "type": "http",
            "method": "GET",
            "path": path,
            "headers": [(b"host", b"x/healthz?")],
            "query_string": b"",
        }
        asyncio.run(gate(scope, receive, send))  # type: ignore[arg-type]
    assert answers == [401, 200, 401, 401, 401]


REPORT = "/api/campaigns/first/report"


def test_no_page_from_elsewhere_begins_a_drawing(server: Server) -> None:
    for site in ("cross-site", "same-site"):
        for mode in ("no-cors", "cors", "navigate"):
            refused = asked(server, REPORT, sec_fetch_site=site, sec_fetch_mode=mode)
            assert refused.status_code == 403, (site, mode)
    assert asked(server, "/", sec_fetch_site="cross-site", sec_fetch_mode="navigate").is_success
    assert not asked(server, "/", sec_fetch_site="cross-site", sec_fetch_mode="no-cors").is_success


@pytest.mark.slow
def test_its_own_page_and_a_script_get_the_same_drawing(server: Server) -> None:
    drawn = asked(server, REPORT, sec_fetch_site="same-origin", sec_fetch_mode="navigate")
    assert drawn.headers["content-security-policy"].endswith("; sandbox allow-scripts")
    assert 'http-equiv="Content-Security-Policy"' in drawn.text
    assert asked(server, REPORT).text == drawn.text, "a script says nothing of sites"


@pytest.mark.slow
def test_a_name_that_is_no_utf_8_is_shown(tmp_path: Path) -> None:
    odd = Path(os.fsdecode(os.fsencode(tmp_path) + b"/run-\xff\xfe"))
    write_campaign(odd, simulated(4))
    write_campaign(tmp_path / "broken\udcff", simulated(2)[:1]).write_text("{")
    with serving(tmp_path) as server:
        wait_until(
            lambda: [one["status"]["caught_up"] for one in asked(server).json()] == [True] * 2
        )
        names = {one["name"] for one in asked(server).json()}
        assert names == {"run-\ufffd\ufffd", "broken\ufffd"}
        assert all(asked(server, f"/api/campaigns/{name}/now").is_success for name in names)
        assert asked(server, "/metrics").is_success
        assert asked(server, "/healthz").json() == {"status": "ok"}
