"""The page works behind a proxy that strips a prefix, and reads no long request."""

import asyncio
import resource
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from playwright.sync_api import Browser, expect

from tests.support.coroutines import finished
from tests.trajectory.live.proxy import PREFIX, stripping_proxy
from tests.trajectory.live.server import (
    TOKEN,
    Server,
    append,
    last_iteration,
    serving,
    simulated,
    write_campaign,
)
from trajectory.live import connections
from trajectory.live.app import MAX_BODY_BYTES
from trajectory.live.connections import TimedProtocol

ROWS = simulated(12)
HEAD = f"Host: localhost\r\nAuthorization: Bearer {TOKEN}\r\nContent-Type: application/json\r\n"


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_campaign(tmp_path_factory.mktemp("runs") / "c", ROWS[:-2])


@pytest.fixture(scope="module")
def server(journal: Path) -> Iterator[Server]:
    with serving(journal.parent.parent, token=TOKEN) as server:
        yield server


@pytest.mark.slow
def test_the_page_works_behind_a_prefix(browser: Browser, server: Server, journal: Path) -> None:
    with stripping_proxy(server.port) as (address, outside), browser.new_context() as context:
        page = context.new_page()
        page.goto(address)
        expect(page).to_have_url(f"{address}login")
        expect(page.locator("#wrong")).to_be_hidden()
        page.fill("#token", "not the token at all")
        page.click("button")
        expect(page.locator("#wrong")).to_be_visible()
        page.fill("#token", TOKEN)
        page.click("button")
        expect(page).to_have_url(address)
        assert [cookie.get("path") for cookie in context.cookies()] == [PREFIX]
        expect(page.locator("#link")).to_have_class("link live")
        expect(page.locator("#trajectory canvas")).to_be_visible()
        append(journal, ROWS[-2])
        line = page.locator(f'#rows tr.row[data-iter="{last_iteration(ROWS[-2]).iter}"]')
        expect(line).to_be_visible()
        with page.expect_response("**/pause") as paused:
            page.locator("#pause").click()
        assert paused.value.ok
        page.goto(f"{address}api/no/such/page", wait_until="commit")
        context.clear_cookies()
        page.goto(f"{address}api/campaigns/c/top")
        expect(page).to_have_url(f"{address}login")
        assert [path for path in outside if path != "/favicon.ico"] == []


HALVES = ("", "GET / HTTP/1.1\r\nHost: local", "PUT /api/campaigns/c/pause HTTP/1.1\r\n" + HEAD)


def test_a_thousand_requests_that_never_end_do_not_block_the_page(journal: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    opened: list[socket.socket] = []
    with ExitStack() as stack:
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        resource.setrlimit(resource.RLIMIT_NOFILE, (1024, hard))  # the usual one, for the server
        server = stack.enter_context(serving(journal.parent.parent))
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, hard), hard))
        for number in range(1100):
            opened.append(socket.create_connection(("127.0.0.1", server.port), timeout=10))
            opened[-1].sendall(HALVES[number % len(HALVES)].encode())
        with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
            connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert connection.recv(1 << 16).startswith(b"HTTP/1.1 200")
        for one in opened:
            one.close()


def test_a_request_that_takes_too_long_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "REQUEST_S", 0.2)

    async def closed(first: bytes, later: bytes) -> bytes:
        async def app(_scope: object, _receive: object, send: Any) -> None:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await asyncio.sleep(0.5)  # an answer may take longer
            await send({"type": "http.response.body", "body": b"whole"})

        with socket.create_server(("127.0.0.1", 0)) as listener:
            config = uvicorn.Config(app, http=TimedProtocol, log_level="error", lifespan="off")
            running = uvicorn.Server(config)
            task = asyncio.create_task(running.serve([listener]))
            reader, writer = await asyncio.open_connection(*listener.getsockname())
            writer.write(first)
            await writer.drain()
            await asyncio.sleep(0.1)
            writer.write(later)
            try:
                async with asyncio.timeout(3):
                    return await reader.read(1 << 16) + await reader.read(1 << 16)
            except ConnectionError:
                return b""
            finally:
                writer.close()
                running.should_exit = True
                await task

    assert finished(closed(b"GET / HTTP/1.1\r\n", b"Host: a\r\n")) == b""
    post = b"POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 2\r\n\r\n"
    assert b"whole" in finished(closed(post, b"ab"))


SIZED = f"Content-Length: {10**9}\r\n\r\n"
CHUNKED = (
    f"Transfer-Encoding: chunked\r\n\r\n{MAX_BODY_BYTES + 1:x}\r\n{' ' * (MAX_BODY_BYTES + 1)}\r\n"
)


@pytest.mark.parametrize(
    ("route", "body"),
    [
        ("GET /healthz", SIZED),
        ("POST /login", SIZED),
        ("POST /login", CHUNKED),
        ("PUT /api/campaigns/c/pause", SIZED),
        ("PUT /api/campaigns/c/pause", CHUNKED),
    ],
)
def test_a_long_body_is_refused_unread(server: Server, route: str, body: str) -> None:
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        connection.sendall(f"{route} HTTP/1.1\r\n{HEAD}{body}".encode())
        answer = b""
        while some := connection.recv(1 << 16):  # until the server closes
            answer += some
    assert answer.startswith(b"HTTP/1.1 413")
