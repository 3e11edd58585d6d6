import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from agent.proposers.llm.completions import Message
from agent.proposers.llm.endpoint import Endpoint
from agent.proposers.llm.failures import TRIES, EndpointError, RefusedError
from agent.proposers.llm.wire import Patience, parsed
from autoresearch.errors import SettingsError
from tests.support.endpoints import ANSWER, CHAT, KEY, QUICK, SCHEMA, endpoint_at
from tests.support.openai_server import OpenAIServer, says, sends
from tests.support.ports import free_port
from tests.support.raw_server import RawServer, Speech, repeats, says_once
from tests.support.waiting import wait_until

HURRIED = Patience(timeout_s=0.5, deadline_s=0.5, wait=lambda _: 0.01)
OK = b"HTTP/1.1 200 OK\r\n"


def asked_at(port: int, patience: Patience = QUICK) -> EndpointError:
    endpoint = Endpoint(f"http://127.0.0.1:{port}/v1", "tiny", KEY, patience=patience)
    with pytest.raises(EndpointError) as raised:
        endpoint.ask(CHAT, SCHEMA)
    return raised.value


@pytest.mark.parametrize(
    "speech",
    [
        repeats(OK + b"X: ", b"y"),
        repeats(b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
        repeats(OK + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n"),
        lambda connection: connection.recv(1 << 20) and None,
    ],
    ids=["header", "100 Continue", "body", "silence"],
)
def test_what_never_ends_ends_at_the_deadline(speech: Speech) -> None:
    with RawServer(speech) as server:
        asked_at(server.port, HURRIED)


@pytest.mark.parametrize(
    "said",
    [OK + b'Content-Length: 100\r\n\r\n{"choices"', b"SSH-2.0-OpenSSH_9.6\r\n\r\n"],
    ids=["cut body", "another protocol"],
)
def test_what_will_not_pass_is_final_at_once(said: bytes) -> None:
    with RawServer(says_once(said)) as server:
        assert isinstance(asked_at(server.port), RefusedError)
        assert len(server.heads) == 1


@pytest.mark.parametrize("charset", ["zlib", "hex", "idna", "no-such-charset"])
def test_an_encoding_that_the_server_names_is_not_used(charset: str) -> None:
    head = f"HTTP/1.1 403 No\r\nContent-Type: text/plain; charset={charset}\r\n\r\n"
    with RawServer(says_once(head.encode() + b"no credit")) as server:
        assert "no credit" in str(asked_at(server.port))


@pytest.mark.parametrize(
    "said",
    [
        b"HTTP/1.1 bad %b\r\n\r\n",
        OK + b"X Y: %b\r\n\r\n",
        OK + b"Transfer-Encoding: chunked\r\n\r\n1\r\n \r\n0\r\n%b\r\n\r\n",
        b"HTTP/1.1 302 Found\r\nLocation: http://other/%b\r\n\r\n",
    ],
    ids=["status", "header", "trailer", "location"],
)
def test_a_malformed_reply_that_echoes_the_key_is_quoted_without_it(said: bytes) -> None:
    with RawServer(says_once(said % KEY.encode())) as server:
        assert KEY not in str(asked_at(server.port))


COMPLETION = b'{"choices": [{"message": {"content": "{\\"a\\": 1}"}, "index": 0}], "usage": {}}'
PLAIN = OK + b"Content-Length: %d\r\n" % len(COMPLETION)


@pytest.mark.parametrize(
    "said",
    [
        b"HTTP/1.0 200 OK\r\n\r\n" + COMPLETION,
        PLAIN.replace(b"\r\n", b"\n") + b"\n" + COMPLETION,
        b"HTTP/1.1 103 Early Hints\r\n\r\n" + PLAIN + b"\r\n" + COMPLETION,
        PLAIN + b"Content-Encoding: Identity\r\n\r\n" + COMPLETION,
        OK
        + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\nX: y\r\n\r\n"
        % (len(COMPLETION), COMPLETION),
        OK + b"\r\n\xef\xbb\xbf" + COMPLETION,
        OK + b"\r\n" + COMPLETION.replace(b'{"content"', b'{"content": "no", "content"'),
        OK + b"\r\n" + COMPLETION.replace(b": 0", b": NaN").replace(b"{}", b'{"a": -Infinity}'),
    ],
    ids=["1.0", "line feeds", "hints", "identity", "trailers", "BOM", "doubled key", "NaN"],
)
def test_an_odd_reply_is_read(said: bytes) -> None:
    with RawServer(says_once(said)) as server:
        endpoint = Endpoint(f"http://127.0.0.1:{server.port}/v1", "tiny", patience=QUICK)
        assert endpoint.ask(CHAT, SCHEMA).text == ANSWER


def test_an_answer_before_the_question_was_read_counts() -> None:
    long = [Message("user", "x" * (4 << 20))]
    with RawServer(says_once(OK + b"\r\n" + COMPLETION)) as server:
        endpoint = Endpoint(f"http://127.0.0.1:{server.port}/v1", "tiny", patience=QUICK)
        assert endpoint.ask(long, SCHEMA).text == ANSWER


def test_a_hang_up_without_a_word_is_tried_again_a_few_times() -> None:
    with RawServer(says_once(b"")) as server:
        assert not isinstance(asked_at(server.port), RefusedError)
        assert len(server.heads) == TRIES


def test_a_tls_error_is_final_at_once() -> None:
    with RawServer(says_once(OK + b"Content-Length: 0\r\n\r\n")) as server:
        endpoint = Endpoint(f"https://127.0.0.1:{server.port}/v1", "tiny", patience=QUICK)
        with pytest.raises(RefusedError):
            endpoint.ask(CHAT, SCHEMA)
        assert len(server.heads) == 1


def test_a_redirect_is_not_followed() -> None:
    with OpenAIServer([says(ANSWER)]) as other:
        target = {"Location": f"{other.url}/chat/completions"}
        with OpenAIServer([sends(b"", 307, target)]) as server:
            with pytest.raises(RefusedError):
                endpoint_at(server).ask(CHAT, SCHEMA)
            assert len(server.chats) == 1
        assert (other.chats, other.authorizations) == ([], [])


@pytest.fixture
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in ("HTTP", "HTTPS", "ALL", "NO"):
        monkeypatch.delenv(f"{name}_PROXY", raising=False)
        monkeypatch.delenv(f"{name}_PROXY".lower(), raising=False)
    return monkeypatch


@pytest.mark.parametrize(
    ("variable", "scheme"),
    [("HTTP_PROXY", "http"), ("ALL_PROXY", "socks5"), ("all_proxy", "socks")],
)
def test_loopback_has_no_proxy(no_proxies: pytest.MonkeyPatch, variable: str, scheme: str) -> None:
    no_proxies.setenv(variable, f"{scheme}://127.0.0.1:{free_port()}")
    with OpenAIServer([says(ANSWER)]) as server:
        assert endpoint_at(server).ask(CHAT, SCHEMA).text == ANSWER


@pytest.mark.parametrize("proxy", ["socks://u:hunter22@h:1", "gopher://h"])
def test_a_proxy_that_cannot_be_used_is_named(no_proxies: pytest.MonkeyPatch, proxy: str) -> None:
    no_proxies.setenv("ALL_PROXY", proxy)
    with pytest.raises(SettingsError, match="ALL_PROXY") as raised:
        Endpoint("http://models.example/v1", "tiny")
    assert "hunter22" not in str(raised.value)


def test_whatever_the_client_raises_is_a_failure_of_the_endpoint(
    no_proxies: pytest.MonkeyPatch,
) -> None:
    no_proxies.setenv("HTTP_PROXY", "http://127.0.0.1:99999")  # an OverflowError of Python's own
    with pytest.raises(EndpointError):
        Endpoint("http://models.example/v1", "tiny", patience=QUICK).ask(CHAT, SCHEMA)


def test_a_refusal_behind_a_proxy_shows_no_secret_of_it(no_proxies: pytest.MonkeyPatch) -> None:
    with RawServer(says_once(b"HTTP/1.1 403 No\r\nContent-Length: 0\r\n\r\n")) as proxy:
        no_proxies.setenv("HTTP_PROXY", f"http://me:hunter22@127.0.0.1:{proxy.port}")
        endpoint = Endpoint("http://models.example/v1", "tiny", patience=QUICK)
        with pytest.raises(EndpointError) as raised:
            endpoint.ask(CHAT, SCHEMA)
        assert "HTTP_PROXY" in str(raised.value)
        assert "hunter22" not in str(raised.value)
        assert proxy.heads[0].startswith(b"POST http://models.example/v1/chat/completions ")


def test_a_file_of_no_certificate_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "empty.pem").write_text("none")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "empty.pem"))
    with pytest.raises(SettingsError, match="SSL_CERT_FILE"):
        Endpoint("https://127.0.0.1:1/v1", "tiny")


def test_a_connection_after_the_deadline_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    is_late, made = threading.Event(), list[socket.socket]()
    connect = socket.create_connection

    def slowly(*args: Any, **options: Any) -> socket.socket:
        is_late.wait()
        made.append(connect(*args, **options))
        return made[0]

    monkeypatch.setattr(socket, "create_connection", slowly)
    with OpenAIServer([says(ANSWER)]) as server:
        with pytest.raises(EndpointError):
            endpoint_at(server, patience=Patience(timeout_s=0.01, deadline_s=0.01)).context  # noqa: B018
        is_late.set()
        wait_until(lambda: made and made[0].fileno() == -1)


@pytest.mark.slow
def test_a_lookup_that_hangs_holds_neither_the_turn_nor_the_end_of_the_process() -> None:
    code = """
import socket, threading
from agent.proposers.llm.endpoint import Endpoint, EndpointError
from agent.proposers.llm.wire import Patience
from tests.support.endpoints import CHAT, SCHEMA
socket.getaddrinfo = lambda *args, **options: threading.Event().wait()
patience = Patience(timeout_s=0.5, deadline_s=0.5)
try:
    Endpoint("http://models.example/v1", "tiny", patience=patience).ask(CHAT, SCHEMA)
except EndpointError:
    print("ended")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr, done.returncode) == ("ended\n", "", 0)


@pytest.mark.parametrize("command", ["top", "loop", "doctor", "export"])
def test_a_command_that_asks_no_model_does_not_load_the_client(command: str) -> None:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "autoresearch", command, "--help"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "| autoresearch" in done.stderr.replace(" ", "").replace("|", "| ")
    assert "openai" not in done.stderr


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("localhost:8000", "http://localhost:8000/v1"),
        ("LOCALHOST", "http://localhost/v1"),
        ("127.0.0.1:8000/v1/", "http://127.0.0.1:8000/v1"),
        ("10.0.0.7/v1", "http://10.0.0.7/v1"),
        ("gpu7:80", "http://gpu7/v1"),
        ("[::1]", "http://[::1]/v1"),
        ("api.example.com/v1/chat/completions/", "https://api.example.com/v1"),
        ("api.example.com:80/v1", "https://api.example.com:80/v1"),
        ("localhost.example.com:8000", "https://localhost.example.com:8000/v1"),
        ("8.8.8.8:8000", "https://8.8.8.8:8000/v1"),
        ("[::ffff:8.8.8.8]:8000", "https://[::ffff:808:808]:8000/v1"),
        ("me:10@api.example.com/v1", "https://me:10@api.example.com/v1"),
        (" HTTP://LOCALHOST:8000/v1/ ", "http://localhost:8000/v1"),
        ("http://localhost:8000/v1/chat/completions", "http://localhost:8000/v1"),
        ("https://api.example.com/openai/v1?v=2", "https://api.example.com/openai/v1?v=2"),
        ("http://[::1]:8000", "http://[::1]:8000/v1"),
    ],
)
def test_the_usual_forms_of_a_base_url(given: str, meant: str) -> None:
    assert str(parsed(given)) == meant
