"""Provide a small server that speaks the OpenAI protocol on loopback and misbehaves on request.

Each chat gets the next scripted turn, and after the script's end the last turn again.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self, TypeAlias

Json: TypeAlias = dict[str, Any]
Turn: TypeAlias = "Callable[[Handler], None]"


# --- turns: what the server does with one chat request ------------------------------------------


def says(
    content: object,
    *,
    finish_reason: str = "stop",
    **fields: Any,
) -> Turn:
    """Answer with a well-formed completion; ``fields`` are more fields of its message."""
    message: Json = {"role": "assistant", "content": content, **fields}
    return sends_json(
        {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "model": "tiny",
            "choices": [{"index": 0, "message": message, "finish_reason": finish_reason}],
            "usage": {"prompt_tokens": 101, "completion_tokens": 7, "total_tokens": 108},
        }
    )


def sends_json(value: Json, status: int = 200, headers: Json | None = None) -> Turn:
    return sends(json.dumps(value).encode(), status, headers)


def sends(body: bytes, status: int = 200, headers: Json | None = None) -> Turn:
    """Answer with these very bytes, labeled as JSON."""

    def turn(handler: Handler) -> None:
        handler.answer(status, body, headers or {})

    return turn


def refuses(status: int, message: str = "no", *, param: str = "", **headers: str) -> Turn:
    """Answer with an error in the protocol's form; in names of ``headers``, ``_`` stands for
    ``-``."""
    error = {"message": message, "type": "error", "param": param or None, "code": None}
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return sends_json({"error": error}, status, named)


def hangs(seconds: float) -> Turn:
    """Send no byte for this long (or until the server stops), then drop the connection."""

    def turn(handler: Handler) -> None:
        handler.server.stopping.wait(seconds)
        handler.close_connection = True

    return turn


# --- the server -----------------------------------------------------------------------------------


class OpenAIServer:
    """Serve a script of turns: ``with OpenAIServer([says("…")]) as server: … server.url``.

    :param rejects: schema modes that are refused.
    :param rejection: the answer to a request in a refused mode; None: HTTP 400.
    :param tells: fields of each entry in the list of models, besides its id.
    """

    def __init__(
        self,
        script: Iterable[Turn] = (),
        *,
        rejects: Sequence[str] = (),
        rejection: Turn | None = None,
        models: Sequence[str] = ("tiny",),
        tells: Json | None = None,
    ) -> None:
        self.script = list(script)
        self.rejects = tuple(rejects)
        self.rejection = rejection
        self.models = tuple(models)
        self.tells = tells or {}
        self.pages: dict[str, list[Turn]] = {}
        """Turns of pages by the end of their path; the last one again and again."""
        self.requests: list[tuple[str, dict[str, str]]] = []
        """Method with path, and headers in lower case, of every request."""
        self.elsewhere: Turn | None = None
        """The answer to every request but a chat, instead of the list of models."""
        self.chats: list[Json] = []
        """Bodies of the chat requests."""
        self.models_asked = 0
        self.others_asked = 0
        """Requests that posted something other than a chat."""
        self.authorizations: list[str | None] = []
        self._http = _Server(("127.0.0.1", 0), Handler)
        self._http.owner = self
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_address[1]}/v1"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._http.stopping.set()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join(5)

    def page(self, method: str, path: str, headers: Mapping[str, str]) -> Turn | None:
        named = {name.lower(): value for name, value in headers.items()}
        self.requests.append((f"{method} {path}", named))
        turns = next((each for end, each in self.pages.items() if path.endswith(end)), None)
        if turns is None:
            return None
        return turns.pop(0) if len(turns) > 1 else turns[0]

    def turn_for(self, body: Json) -> Turn:
        self.chats.append(body)
        mode = mode_of(body)
        if mode in self.rejects:
            return self.rejection or refuses(400, f"unknown field: {mode}")
        return self.script.pop(0) if len(self.script) > 1 else self.script[0]


def mode_of(body: Json) -> str:
    """Return the schema mode that a chat request asks for."""
    form = body.get("response_format", {"type": "none"})
    return "json_object.schema" if "schema" in form else str(form["type"])


def schema_of(body: Json) -> Json | None:
    """Return the schema in a chat request, wherever it is."""
    form = body.get("response_format", {})
    found: Json | None = form.get("json_schema", form).get("schema")
    return found


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    owner: OpenAIServer

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        super().__init__(address, handler)
        self.stopping = threading.Event()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print nothing: a client that disconnects is part of the test."""


class Handler(BaseHTTPRequestHandler):
    """Answer the requests of one connection."""

    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing."""

    def do_GET(self) -> None:
        owner = self.server.owner
        turn = owner.page("GET", self.path, self.headers)
        if turn is not None:
            return turn(self)
        owner.models_asked += 1
        if owner.elsewhere is not None:
            return owner.elsewhere(self)
        if not self.path.endswith("/models"):
            return refuses(404, "no such page")(self)
        data = [{"id": name, "object": "model", **owner.tells} for name in owner.models]
        return sends_json({"object": "list", "data": data})(self)

    def do_POST(self) -> None:
        owner = self.server.owner
        body = self.rfile.read(int(self.headers["Content-Length"]))
        turn = owner.page("POST", self.path, self.headers)
        if turn is not None:
            owner.chats.append(json.loads(body))
            return turn(self)
        if owner.elsewhere is not None and not self.path.endswith("/chat/completions"):
            owner.others_asked += 1
            return owner.elsewhere(self)
        owner.authorizations.append(self.headers.get("Authorization"))
        return owner.turn_for(json.loads(body))(self)

    def start(self, status: int, headers: Json) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def answer(self, status: int, body: bytes, headers: Json) -> None:
        self.start(status, {"Content-Length": str(len(body)), **headers})
        self.wfile.write(body)
