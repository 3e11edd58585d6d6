"""The process that has imported torch and forks trials: ``python -m trainer.isolation.forkserver
SETTINGS``.

A cold Python needs a second or two to import torch; a fork of a warm one needs milliseconds and is
as fresh: nothing has trained in it, CUDA is untouched, no OpenMP thread has started. The server is
ours rather than :mod:`multiprocessing`'s because that one keeps the whole environment it was
started with, API keys included, readable in /proc/self/environ of every child.

It runs one trial at a time, has the next one's process wait meanwhile
(:mod:`trainer.isolation.waiting`), and is also the trial's undertaker
(:mod:`trainer.isolation.undertaker`): when the trial ends it kills what is left and reports only
once nothing is.

A trial that says it is over is killed at its word. Where it has no child, nothing of it runs after
that: so the next may begin, while the kernel still takes the former's memory apart and its report
is to come. A process that forked as it said so, and at that very moment lost its threads one by one
while the server read who their children are, could leave one unseen; that would end with the next
trial, and be counted as its. The ruler's own trainer starts no process, and for commands, which may
be anybody's code, nothing is said ahead of the end.

The server ends itself, and the trial, when the supervisor closes the control
socket or dies, which closes it too.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import select
import selectors
import signal
import socket
import sys
import time
from functools import partial
from pathlib import Path
from types import FrameType

from trainer.isolation import trial_startup
from trainer.isolation.kernel.sandbox import Layers, Sandbox
from trainer.isolation.messages import (
    Channel,
    Over,
    Ready,
    ServerSettings,
    Start,
    Started,
    Stop,
    WaitsNoMore,
)
from trainer.isolation.process_tree import (
    become_subreaper,
    children,
    die_with_parent,
    give_way,
    resident_bytes,
)
from trainer.isolation.undertaker import Undertaker
from trainer.isolation.waiting import Waiting

_HEAD_START_S = 0.05
"""A trial's, before this process forks again."""
_LOOKS_FOR_CHILDREN = 2
_LIGHT_BYTES = 1 << 30
"""What a trial may hold that is taken apart while the next begins: that takes 0.2 s at most."""


class ForkServer:
    """Serves the supervisor at the other end of ``channel`` until it goes away."""

    def __init__(self, channel: Channel, settings: ServerSettings) -> None:
        self._channel = channel
        self._settings = settings
        layers = Layers(settings.landlock_abi, settings.seccomp)
        self._sandbox = Sandbox.prepare(layers, Path(settings.root))
        self._prepared: set[str] = set()
        self._trial: Waiting | None = None
        """The one that runs. Its process id is its session's and group's too."""
        self._waiting: Waiting | None = None
        self._over: set[int] = set()
        """Said so and killed, with nothing left that runs, and not yet collected."""
        self._undertaker = Undertaker()
        self._kill_at: float | None = None
        self._closing = False
        self._wakeup, self._signalled = socket.socketpair()
        self._selector = selectors.DefaultSelector()
        self._selector.register(channel, selectors.EVENT_READ, self._hear)
        self._selector.register(self._wakeup, selectors.EVENT_READ, self._drain_wakeup)

    def serve(self) -> None:
        """Fork, watch and bury trials until told to stop or left alone."""
        self._catch_signals()
        try:
            self._channel.send(Ready())
            while not self._closing:
                self._wait()
                self._bury_the_dead()
        except BrokenPipeError:
            pass  # the supervisor is gone
        finally:
            self._signal_trial(signal.SIGKILL)
            self._undertaker.sweep()

    def _wait(self) -> None:
        """Until the supervisor speaks or dies, a process ends or the grace of a stop is over."""
        timeout = None if self._kill_at is None else max(0.0, self._kill_at - time.monotonic())
        for key, _ in self._selector.select(timeout):
            key.data()
        if os.getppid() != self._settings.parent:
            self._closing = True
        if self._kill_at is not None and time.monotonic() >= self._kill_at:
            self._signal_trial(signal.SIGKILL)
            self._kill_at = None

    # --- the supervisor's wishes ---------------------------------------------------------------

    def _hear(self) -> None:
        try:
            messages = self._channel.receive()
        except EOFError:
            self._closing = True
            return
        for message in messages:
            if isinstance(message, Start):
                self._start(message)
            elif isinstance(message, Stop) and self._trial is not None:
                self._signal_trial(signal.SIGTERM)
                self._kill_at = time.monotonic() + message.grace_s

    def _start(self, start: Start) -> None:
        """Have the one that waits be the trial, and another wait."""
        if self._settings.warm:
            self._prepare(start.imports)
        try:
            trial = self._waiting or self._fork(start)
            trial.begin(start)
        except BrokenPipeError:  # it was killed while it waited
            trial.close()
            self._undertaker.forget(trial.pid)
            trial = self._fork(start)
            trial.begin(start)
        self._trial, self._waiting = trial, None
        assert trial.ear is not None, "it has just been made"
        # First the trial, which may have this processor alone, up to where it trains.
        select.select([trial.ear], [], [], _HEAD_START_S)
        with contextlib.suppress(OSError):  # then the next one's start is what it takes
            self._waiting = self._fork(start)
        waiting = None if self._waiting is None else self._waiting.pid
        self._channel.send(Started(pid=trial.pid, waiting=waiting))
        self._selector.register(trial.ear, selectors.EVENT_READ, self._hear_trial)

    def _prepare(self, ahead: tuple[str, ...]) -> None:
        """Do once what these trials would each do at their start."""
        new = [name for name in ahead if name not in self._prepared]
        if new:
            self._dismiss()  # who waits has not done it
            self._prepared.update(new)
            _do_ahead(new)
            _freeze_heap()

    def _dismiss(self) -> None:
        """End whoever waits."""
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            waiting.close()
            self._undertaker.forget(waiting.pid)
            with contextlib.suppress(ProcessLookupError, ChildProcessError):
                os.kill(waiting.pid, signal.SIGKILL)
                os.waitpid(waiting.pid, 0)

    def _fork(self, like: Start) -> Waiting:
        """One that waits to be a trial such as ``like``."""
        live = partial(
            trial_startup.live,
            server=os.getpid(),
            load=partial(load_entry, self._settings.entry),
            sandbox=self._sandbox,
            like=like,
        )
        forked = Waiting(live, self._become_nobody)
        self._undertaker.expect(forked.pid)
        return forked

    def _become_nobody(self) -> None:
        """In the child: let go of everything that belongs to the server."""
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGUSR1, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        self._selector.close()
        self._channel.close()
        if self._trial is not None:
            self._trial.close()
        self._wakeup.close()
        self._signalled.close()

    def _hear_trial(self) -> None:
        if self._trial is not None:
            self._pass_on(self._trial)
            if self._trial.said_over:
                self._end_at_its_word(self._trial)

    def _pass_on(self, trial: Waiting) -> None:
        """Report to the supervisor what the trial has said by now."""
        while trial.ear is not None and (words := trial.ear.hear()) != []:
            for word in words or ():
                if isinstance(word, Over):
                    trial.said_over = True
                else:
                    self._channel.send(word.model_copy(update={"pid": trial.pid}))
            if words is None or trial.said_over:
                self._hang_up(trial)

    def _hang_up(self, trial: Waiting) -> None:
        if trial.ear is not None:
            self._selector.unregister(trial.ear)
        trial.close()

    def _end_at_its_word(self, trial: Waiting) -> None:
        """Kill it, after which it forks no more; where it has no child, the next may begin, unless
        it holds so much that both together may be too much, or take long to be taken apart."""
        is_light = resident_bytes(trial.pid) <= _LIGHT_BYTES
        self._signal_trial(signal.SIGKILL)
        if not is_light:
            return
        ours = self._spared() | {trial.pid}
        # In this order: a child goes from the trial to this process, and never back.
        for _ in range(_LOOKS_FOR_CHILDREN):
            if children(trial.pid) or set(children(os.getpid())) - ours:
                return  # the next begins when all are buried
        self._over.add(trial.pid)
        self._trial = self._kill_at = None
        self._channel.send(Over(pid=trial.pid))
        give_way(trial.pid)  # to the next, which may have this one processor too

    # --- the trial's end -----------------------------------------------------------------------

    def _signal_trial(self, number: signal.Signals) -> None:
        """To its whole group; and to itself, if it has not yet made one."""
        if self._trial is None:
            return
        for send in (os.killpg, os.kill):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                send(self._trial.pid, number)

    def _bury_the_dead(self) -> None:
        """Collect what has ended; where that is a trial, end all that it left, and report."""
        dead = self._undertaker
        dead.collect()
        for pid in [pid for pid in self._over if dead.has(pid)]:
            self._over.remove(pid)
            self._channel.send(dead.ended(pid, at_its_word=True))
        trial = self._trial
        if trial is not None and dead.has(trial.pid):
            self._signal_trial(signal.SIGKILL)
            survivors = dead.sweep(but=self._spared())
            self._pass_on(trial)
            self._hang_up(trial)
            self._trial = self._kill_at = None
            said = dead.ended(
                trial.pid,
                at_its_word=trial.said_over,
                began=trial.has_begun,
                survivors=survivors,
            )
            self._channel.send(said)
        waiting = self._waiting
        if waiting is not None and dead.has(waiting.pid):
            waiting.close()
            dead.forget(waiting.pid)
            self._waiting = None
            with contextlib.suppress(OSError):
                self._channel.send(WaitsNoMore(pid=waiting.pid))

    def _spared(self) -> set[int]:
        """Processes of this server's that are no trial's, or of one that runs no more."""
        waiting = set() if self._waiting is None else {self._waiting.pid}
        return waiting | self._over

    # --- signals -------------------------------------------------------------------------------

    def _catch_signals(self) -> None:
        """SIGCHLD and the parent's death (SIGUSR1) only wake the loop, which then looks."""
        self._wakeup.setblocking(False)
        self._signalled.setblocking(False)
        signal.set_wakeup_fd(self._signalled.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, _only_wake)
        signal.signal(signal.SIGUSR1, _only_wake)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, self._close)
        # Not SIGKILL: orphans of the trial would outlive a server that could not end them.
        die_with_parent(self._settings.parent, by=signal.SIGUSR1)

    def _close(self, number: int, frame: FrameType | None) -> None:
        self._closing = True

    def _drain_wakeup(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while self._wakeup.recv(4096):
                pass


def _only_wake(number: int, frame: FrameType | None) -> None:
    pass


def load_entry(entry: str) -> trial_startup.TrialFunction:
    """The function that ``module:function`` names."""
    module, _, name = entry.partition(":")
    function: trial_startup.TrialFunction = getattr(importlib.import_module(module), name)
    return function


def _do_ahead(names: list[str]) -> None:
    """Import modules, and call what ``module:function`` names; what cannot be, the trial will meet
    again and report, however an optional compiler is broken."""
    for name in names:
        with contextlib.suppress(Exception):
            if ":" in name:
                load_entry(name)()  # type: ignore[call-arg]
            else:
                importlib.import_module(name)


def _freeze_heap() -> None:
    """Children inherit the heap copy-on-write; a collection there would copy all of it."""
    gc.collect()
    gc.freeze()


def main() -> None:
    """Serve as the one argument, a ServerSettings in JSON, says."""
    settings = ServerSettings.model_validate_json(sys.argv[1])
    become_subreaper()
    if settings.cores:
        # First: what is imported counts the processors once, and has as many threads.
        os.sched_setaffinity(0, settings.cores)
    if settings.warm:
        load_entry(settings.entry)
    _freeze_heap()
    ForkServer(Channel(socket.socket(fileno=settings.control_fd)), settings).serve()


if __name__ == "__main__":
    main()
