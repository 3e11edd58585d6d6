"""Ask a language model through a command, such as ``claude -p``.

The question goes to the command's standard input, and its standard output is the reply. The command
starts without a shell, in an empty folder and in a process group of its own, which ends with each
question. It has this user's rights and environment, because it needs the user's login, but no
variable of this product and no tracker's secret. Replies in the JSON of three agent programs are
unpacked; any other output is the reply itself.
"""

import json
import os
import selectors
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from agent.proposers.base import ProposerError
from agent.proposers.llm.completions import Json, Message, Reply
from agent.proposers.llm.failures import SAID_CHARACTERS, EndpointError
from agent.settings.environment import TRACKER_SECRETS, Environment
from autoresearch.errors import SettingsError
from autoresearch.safe_text import one_line, redact
from autoresearch.words import counted
from trainer.machine.environment import as_it_is
from trajectory.proposals import Attempt

MODE = "command"
MOST_BYTES = 4 << 20
"""Largest reply to read."""
MOST_ERROR_BYTES = 1 << 16
POLL_S = 0.05
_PROMPT_TOKENS = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")


class CommandModel:
    """A command that answers questions.

    :raises SettingsError: if the environment's command cannot be split into words.
    """

    def __init__(self, environment: Environment) -> None:
        self._words = command_words(environment.proposer_command or "")
        self._limits = environment
        self._calls, self._usd = 0, 0.0
        self._is_silent = self._is_closed = False
        self._running: subprocess.Popen[bytes] | None = None

    @property
    def known_model(self) -> str:
        """Name of the program. Its arguments may hold a secret."""
        return Path(self._words[0]).name

    @property
    def model(self) -> str:
        """Name of the program."""
        return self.known_model

    @property
    def context(self) -> int | None:
        """None: commands do not report their context."""
        return None

    @property
    def where(self) -> str:
        """Name of the command in messages."""
        return f"the command {self.known_model}"

    def count(self, attempts: Iterable[Attempt]) -> None:
        """Count the calls of earlier sessions towards the limits."""
        for attempt in attempts:
            self._calls += 1
            self._usd += attempt.cost_usd or 0.0

    def ask(self, messages: Sequence[Message], schema: Json, *, warmer: float = 0.0) -> Reply:
        """Return the reply to this chat, which the caller must validate: see :attr:`Reply.error`.

        :param schema: unused, since the prompt describes the reply.
        :param warmer: unused, since a command has no temperature.
        :raises EndpointError: if no reply came.
        :raises ProposerError: if the command may not be asked again.
        """
        self._check_limits()
        self._calls += 1
        limits = self._limits
        longest_s = max(limits.llm_deadline_s, limits.llm_timeout_s)
        limit_s = limits.llm_timeout_s if self._is_silent else longest_s
        began, self._is_silent = time.monotonic(), True
        code, printed, errors = self._run(_as_text(messages), limit_s)
        reply = replace(read_output(redact(printed)), latency_s=time.monotonic() - began)
        self._usd += reply.cost_usd or 0.0
        last = redact(errors).strip().splitlines()[-1:]
        why = one_line(reply.error or "".join(last) or reply.text, SAID_CHARACTERS)
        failed = ""
        if code:
            failed = f"ended with exit code {code}"
        elif reply.error is not None:
            failed = "reported an error"
        elif not reply.text.strip():
            failed = "printed no reply"
        if failed:
            error = EndpointError(
                f"{self.where} {failed} ({why or 'it gave no reason'}); run it by hand in an empty "
                "folder, with a question on its standard input"
            )
            error.cost_usd = reply.cost_usd
            raise error
        self._is_silent = False
        return reply

    def close(self) -> None:
        """End the question in progress, and ask none from now on."""
        self._is_closed = True
        if (process := self._running) is not None:
            _end_group(process)

    def _check_limits(self) -> None:
        if self._is_closed:
            raise ProposerError(f"{self.where} is not asked while the loop ends")
        if self._calls >= self._limits.proposer_calls:
            raise ProposerError(
                f"{self.where} was asked {counted(self._calls, 'time')}, as often as it may be in "
                "one campaign; raise --proposer-calls to ask it again"
            )
        if self._usd >= self._limits.proposer_usd:
            raise ProposerError(
                f"{self.where} has cost ${self._usd:.2f} of the ${self._limits.proposer_usd:.2f} "
                "that it may cost in one campaign; raise --proposer-usd to ask it again"
            )

    def _run(self, question: str, limit_s: float) -> tuple[int, str, str]:
        """Return the command's exit code, standard output and the end of its standard error.

        :raises EndpointError: if it cannot start, or does not end within its limits.
        """
        with (
            tempfile.TemporaryDirectory(prefix="proposer-", ignore_cleanup_errors=True) as folder,
            tempfile.TemporaryFile() as given,
        ):
            given.write(question.encode("utf-8", "replace"))
            given.seek(0)
            try:
                process = subprocess.Popen(
                    self._words,
                    cwd=folder,
                    env=users_environment(),
                    stdin=given,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    start_new_session=True,
                )
            except (OSError, ValueError) as error:
                why = getattr(error, "strerror", None) or error
                raise EndpointError(
                    f"{self.where} cannot be started ({why}); install it, or give its full path in "
                    "--proposer-command"
                ) from error
            with process:
                self._running = process
                try:
                    if self._is_closed:
                        raise EndpointError(f"{self.where} was ended with the loop")
                    printed, errors = self._output(process, limit_s)
                finally:
                    self._running = None
                    _end_group(process)
            return (
                process.returncode,
                printed.decode("utf-8", "replace"),
                errors.decode("utf-8", "replace"),
            )

    def _output(self, process: subprocess.Popen[bytes], limit_s: float) -> tuple[bytes, bytes]:
        """Read a process's output until it has ended. Its descendants may hold the pipes open."""
        ends = time.monotonic() + limit_s
        printed, errors, has_ended = bytearray(), bytearray(), False
        with selectors.DefaultSelector() as selector:
            for stream, read in ((process.stdout, printed), (process.stderr, errors)):
                assert stream is not None, "a pipe"
                selector.register(stream, selectors.EVENT_READ, read)
            while True:
                ready = selector.select(0 if has_ended else POLL_S)
                for key, _ in ready:
                    chunk = os.read(key.fd, 1 << 16)
                    key.data.extend(chunk)
                    if not chunk:
                        selector.unregister(key.fileobj)
                del errors[:-MOST_ERROR_BYTES]
                if len(printed) > MOST_BYTES:
                    raise EndpointError(
                        f"{self.where} printed over {MOST_BYTES >> 20} MiB; have it print only its "
                        "final reply"
                    )
                if has_ended and not ready:
                    return bytes(printed), bytes(errors)
                has_ended = has_ended or _has_ended(process)
                if time.monotonic() > ends:
                    raise EndpointError(
                        f"{self.where} did not answer within {limit_s:g} s; raise "
                        "AUTORESEARCH_LLM_DEADLINE_S, or choose a faster model"
                    )


def read_output(output: str) -> Reply:
    """Return the reply in what ``claude -p --output-format json``, ``codex exec --json`` or
    ``gemini --output-format json`` printed; other output is the reply as it is."""
    found: Json = {}
    for event in _events(output):
        kind, item, failure = event.get("type"), event.get("item"), event.get("error")
        if kind == "result":  # of claude
            found["text"] = _text(event.get("result"))
            found["cost_usd"] = _amount(event.get("total_cost_usd"))
            if event.get("is_error"):
                found["error"] = found["text"] or _text(event.get("subtype"))
        elif kind == "item.completed" and isinstance(item, dict):  # of codex
            if item.get("type") == "agent_message":
                found["text"] = _text(item.get("text"))
        elif kind is None and "response" in event and "stats" in event:  # of gemini
            found["text"] = _text(event["response"])
        if kind in {None, "turn.failed"} and isinstance(failure, dict):
            found["error"] = _text(failure.get("message")) or "no reason given"
        usage = event.get("usage")
        if kind in {"result", "turn.completed"} and isinstance(usage, dict):
            counts = [_amount(usage.get(name)) or 0 for name in _PROMPT_TOKENS]
            found["prompt_tokens"] = int(sum(counts))
            found["completion_tokens"] = int(_amount(usage.get("output_tokens")) or 0)
    return Reply(**{"text": "" if found else output, "mode": MODE, "latency_s": 0.0, **found})


def command_words(command: str) -> list[str]:
    """Return a command's words, its program by its full path if it is on this machine.

    :raises SettingsError: if a shell could not split it.
    """
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise SettingsError(
            f"--proposer-command {command!r} cannot be split into words ({error}); quote it as for "
            "a shell"
        ) from None
    if not words:
        raise SettingsError("--proposer-command is empty; give a command such as 'claude -p'")
    found = shutil.which(words[0])
    return [str(Path(found).absolute()) if found else words[0], *words[1:]]


def users_environment() -> dict[str, str]:
    """Return this process's environment without this product's variables and trackers' secrets."""
    trackers = {name for names in TRACKER_SECRETS.values() for name in names}
    return {
        name: value
        for name, value in as_it_is().items()
        if not name.startswith("AUTORESEARCH_") and name not in trackers
    }


def _as_text(messages: Sequence[Message]) -> str:
    """Return a chat as one question, with each refused reply and its correction."""
    said = {"assistant": "Your reply was:\n\n"}
    return "\n\n".join(said.get(each.role, "") + each.content for each in messages) + "\n"


def _events(output: str) -> list[Json]:
    """Return the objects of an output that is JSON: one, a list of them, or one a line."""
    documents: list[Any] = []
    with suppress(ValueError, RecursionError):
        whole = json.loads(output)
        documents = whole if isinstance(whole, list) else [whole]
    if not documents:
        for line in output.splitlines():
            with suppress(ValueError, RecursionError):
                documents.append(json.loads(line))
    return [each for each in documents if isinstance(each, dict)]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _amount(value: Any) -> float | None:
    """Return a count or an amount of money; None if it is none."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and 0 <= value < 1e9 else None


def _has_ended(process: subprocess.Popen[bytes]) -> bool:
    """Return whether a process has ended, without reaping it, so that its group keeps its id."""
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """Kill a process that was not reaped, and its group."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
