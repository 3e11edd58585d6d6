"""Fork trials from a process that has imported torch: ``python -m trainer.isolation.forkserver
SETTINGS``.

A cold Python needs a second or two to import torch. A fork of a warm one needs milliseconds and is
as fresh: nothing has trained in it, CUDA is untouched, no OpenMP thread has started.
:mod:`multiprocessing`'s fork server is not used because it keeps its whole starting environment,
API keys included, readable in /proc/self/environ of every child.

The server runs one trial at a time and also reaps its processes
(:func:`trainer.isolation.process_tree.sweep`). When the trial ends it kills what is left, and
reports only once nothing is.

The server ends itself and the trial when the supervisor closes the control socket, or dies, which
closes it too.
"""

import contextlib
import gc
import importlib
import os
import selectors
import signal
import socket
import sys
import time
from pathlib import Path
from pkgutil import resolve_name
from types import FrameType

from trainer.isolation import trial_process
from trainer.isolation.kernel.libc import use_huge_pages
from trainer.isolation.kernel.sandbox import Layers, Sandbox
from trainer.isolation.messages import (
    Channel,
    DriverEar,
    Ready,
    ServerSettings,
    StartTrial,
    Stop,
    TrialStarted,
)
from trainer.isolation.process_tree import (
    become_subreaper,
    collect,
    die_with_parent,
    sweep,
)
from trainer.isolation.trial_process import TrialFunction


class ForkServer:
    """Serves the supervisor at the other end of ``channel`` until it goes away."""

    def __init__(self, channel: Channel, settings: ServerSettings, run: TrialFunction) -> None:
        self._channel = channel
        self._settings = settings
        self._run = run
        layers = Layers(settings.landlock_abi, settings.seccomp, settings.world)
        self._sandbox = Sandbox.prepare(layers, Path(settings.root))
        self._prepared: set[str] = set()
        self._trial: int | None = None
        """PID of the running trial, which is also its session's and group's."""
        self._ear: DriverEar | None = None
        """Open while reports of the trial are accepted."""
        self._kill_at: float | None = None
        self._closing = False
        self._wakeup, self._signalled = socket.socketpair()
        self._selector = selectors.DefaultSelector()
        self._selector.register(channel, selectors.EVENT_READ, self._hear)
        self._selector.register(self._wakeup, selectors.EVENT_READ, self._drain_wakeup)

    def serve(self) -> None:
        """Fork, monitor and reap trials until stopped or orphaned."""
        self._catch_signals()
        try:
            self._channel.send(Ready())
            while not self._closing:
                self._wait()
                self._reap_ended()
        except BrokenPipeError:
            pass  # the supervisor is gone
        finally:
            self._signal_trial(signal.SIGKILL)
            sweep()

    def _wait(self) -> None:
        """Wait until the supervisor sends something or dies, a process ends, or a stop's grace is
        over."""
        timeout = None if self._kill_at is None else max(0.0, self._kill_at - time.monotonic())
        for key, _ in self._selector.select(timeout):
            key.data()
        if os.getppid() != self._settings.parent:
            self._closing = True
        if self._kill_at is not None and time.monotonic() >= self._kill_at:
            self._signal_trial(signal.SIGKILL)
            self._kill_at = None

    # --- messages of the supervisor
    # ----------------------------------------------------------------

    def _hear(self) -> None:
        try:
            messages = self._channel.receive()
        except EOFError:
            self._closing = True
            return
        for message in messages:
            if isinstance(message, StartTrial):
                self._start(message)
            elif isinstance(message, Stop) and self._trial is not None:
                self._signal_trial(signal.SIGTERM)
                self._kill_at = time.monotonic() + message.grace_s

    def _start(self, start: StartTrial) -> None:
        """Fork the trial's process."""
        new = [name for name in start.imports if name not in self._prepared]
        if new:
            # Do once what this trial and similar ones would each do at their start.
            self._prepared.update(new)
            _preload(new)
            _freeze_heap()
        ear, server = DriverEar(), os.getpid()
        pid = os.fork()
        if pid == 0:
            exit_code = 1
            try:
                self._close_inherited()
                exit_code = trial_process.live(
                    start,
                    ear.as_trial(),
                    server=server,
                    run=self._run,
                    sandbox=self._sandbox,
                )
            finally:
                os._exit(exit_code)
        ear.as_server()
        self._trial, self._ear = pid, ear
        self._channel.send(TrialStarted(pid=pid))
        self._selector.register(ear, selectors.EVENT_READ, self._hear_trial)

    def _close_inherited(self) -> None:
        """Close, in the child, everything that belongs to the server."""
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGUSR1, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        self._selector.close()
        self._channel.close()
        self._wakeup.close()
        self._signalled.close()

    def _hear_trial(self) -> None:
        """Forward the trial's reports to the supervisor."""
        while self._ear is not None and (words := self._ear.hear()) != []:
            for word in words or ():
                self._channel.send(word)
            if words is None:
                self._hang_up()

    def _hang_up(self) -> None:
        if self._ear is not None:
            self._selector.unregister(self._ear)
            self._ear.close()
            self._ear = None

    # --- the trial's end -----------------------------------------------------------------------

    def _signal_trial(self, number: signal.Signals) -> None:
        """Signal the trial's whole group, and the trial itself in case it has not made one yet."""
        if self._trial is None:
            return
        for send in (os.killpg, os.kill):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                send(self._trial, number)

    def _reap_ended(self) -> None:
        """Collect ended processes; if the trial is among them, kill its remaining ones and
        report."""
        ended = collect(self._trial)
        if ended is not None:
            self._signal_trial(signal.SIGKILL)
            survivors = sweep()
            self._hear_trial()
            self._hang_up()
            self._trial = self._kill_at = None
            self._channel.send(ended.model_copy(update={"survivors": survivors}))

    # --- signals -------------------------------------------------------------------------------

    def _catch_signals(self) -> None:
        """Let SIGCHLD and the parent's death (SIGUSR1) wake the loop, which then checks."""
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


def _preload(names: list[str]) -> None:
    """Import modules, and call each ``module:function``. Errors are ignored: the trial meets them
    again and reports them."""
    for name in names:
        with contextlib.suppress(Exception):
            if ":" in name:
                resolve_name(name)()
            else:
                importlib.import_module(name)


def _freeze_heap() -> None:
    """Collect and freeze the heap: children inherit it copy-on-write, and a collection there would
    copy all of it. On huge pages forks of torch take a third of the time."""
    gc.collect()
    gc.freeze()
    use_huge_pages()


def main() -> None:
    """Serve according to the one argument, a ServerSettings in JSON."""
    settings = ServerSettings.model_validate_json(sys.argv[1])
    become_subreaper()
    if settings.cores:
        # First: imported libraries count the processors once to size their thread pools.
        os.sched_setaffinity(0, settings.cores)
    run = resolve_name(settings.entry)
    _freeze_heap()
    ForkServer(Channel(socket.socket(fileno=settings.control_fd)), settings, run).serve()


if __name__ == "__main__":
    main()
