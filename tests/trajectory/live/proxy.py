"""Reverse proxy that strips a prefix, as Jupyter's does, and names the server as the host."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PREFIX = "/proxy/8765"


@contextmanager
def stripping_proxy(port: int) -> Iterator[tuple[str, list[str]]]:
    """Yield the page's address behind the proxy, and the paths asked for outside the prefix."""
    outside: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def forward(self) -> None:
            if not self.path.startswith(PREFIX + "/"):
                outside.append(self.path)
                self.send_error(404)
                return
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            named = {name: value for name, value in self.headers.items() if name != "Host"}
            server = HTTPConnection("127.0.0.1", port)
            path = self.path.removeprefix(PREFIX)
            server.request(self.command, path, body or None, named | {"Connection": "close"})
            answer = server.getresponse()
            self.send_response(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in {"connection", "transfer-encoding", "date"}:
                    self.send_header(name, value)
            self.end_headers()
            try:
                while some := answer.read1():
                    self.wfile.write(some)
            except OSError:
                pass  # the browser disconnected, or the server stopped
            finally:
                server.close()

        do_GET = do_POST = do_PUT = forward  # noqa: N815 (the base class names them)

        def log_message(self, *_: object) -> None:
            """Discard the log, to keep the tests' output clean."""

    proxy = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=proxy.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{proxy.server_address[1]}{PREFIX}/", outside
    finally:
        proxy.shutdown()
        proxy.server_close()
