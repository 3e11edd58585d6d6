"""Run trials on this machine, as sandboxed child processes of this one."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from autoresearch.errors import MachineryError, SandboxError
from autoresearch.layout import RESULT_FILE
from trainer.executors.base import LaneLost, Metered
from trainer.executors.lanes import Lane, Lanes
from trainer.isolation.forkserver_client import ForkServerClient
from trainer.isolation.kernel.cgroup import Groups
from trainer.isolation.kernel.sandbox import Layers
from trainer.isolation.scratch import clear
from trainer.isolation.supervisor import Supervised
from trainer.schema import BuiltIn, Command, CurvePoint, Measured, Place, TrialFailed, TrialSpec

_LOG = logging.getLogger(__name__)

ENTRY = BuiltIn.entry
COMMAND_ENTRY = Command.entry


class LocalLane(Lane):
    """One trial at a time, under a fork server, with one thread that supervises it.

    A trial that ends by a failure of the machinery, or that stood still, runs a second time before
    its end counts. If the fork server dies (something killed it), its trial and the lane are lost;
    the next trial gets a new server.
    """

    def __init__(
        self,
        *,
        place: Place | None = None,
        allow_unsandboxed: bool = False,
        environ: Mapping[str, str] | None = None,
        layers: Layers | None = None,
        entry: str = ENTRY,
        root: Path = Path("/"),
        cores: Sequence[int] = (),
        gpu: str | None = None,
    ) -> None:
        """Start the fork server, without waiting until it is ready.

        :param allow_unsandboxed: if this kernel cannot confine a trial, continue and report that.
        :param environ: the variables that the allowlist filters; None: this process's environment.
        :param layers: the means to confine trials; None: all that the kernel has.
        :param entry: ``module:function`` that a trial runs.
        :param cores: the processors that trials may use. Trials have as many threads unless their
            specs give another number. Empty: all processors.
        :param gpu: how CUDA_VISIBLE_DEVICES names the lane's own GPU, in ``environ`` too.
        :param root: the directory below which /proc/meminfo and a GPU driver's files are found.
        :raises SandboxError: if this kernel cannot confine a trial and that is not allowed.
        """
        self.place, self.gpu = place, gpu
        self._layers = Layers.detect() if layers is None else layers
        if not self._layers.confine and not allow_unsandboxed:
            raise SandboxError(
                "this kernel has no Landlock, so trials cannot be confined to their directories;"
                " use Linux 5.13 or newer with Landlock enabled, or accept it with loop"
                " --allow-unsandboxed; in a campaign that exists, with allow_unsandboxed = true in"
                " its campaign.toml"
            )
        self._root = root
        self.groups = Groups.take()  # first, since the fork server starts in this process's group
        self._start_server = partial(
            ForkServerClient,
            entry=entry,
            layers=self._layers,
            environ=environ,
            root=root,
            cores=tuple(cores),
        )
        self.server = self._start_server()

    def describe(self) -> str:
        """See :meth:`Executor.describe`."""
        group = ", a cgroup a trial" if self.groups is not None else ""
        return f"{self._layers.describe()}{group}, fork server"

    def run(
        self,
        spec: TrialSpec,
        trial_dir: Path,
        on_point: Callable[[CurvePoint], None],
        cancelled: Callable[[], bool],
    ) -> Measured | TrialFailed:
        """See :meth:`Lane.run`."""
        is_last = False
        while True:
            if not self.server.alive:
                self.server.close()
                self.server = self._start_server()
            trial = Supervised(
                self.server,
                spec,
                trial_dir,
                groups=self.groups,
                on_point=on_point,
                cancelled=cancelled,
                meminfo=self._root / "proc" / "meminfo",
            )
            try:
                with (self.meter or _unmetered)(spec) as metered:
                    result = metered(trial.run(), trial.pids)
                if is_last or not trial.must_run_again or cancelled():
                    return result
                why = "it, or this machine, stood still"
            except MachineryError as error:
                if not self.server.alive:
                    raise LaneLost(str(error)) from error
                if is_last or cancelled():
                    raise
                why = str(error)
            is_last = True
            _LOG.warning("trial %s runs once more: %s", spec.trial_id, why)
            with contextlib.suppress(OSError):
                clear(trial_dir / RESULT_FILE)

    def close(self) -> None:
        """See :meth:`Lane.close`."""
        self.server.close()


@contextlib.contextmanager
def _unmetered(_spec: TrialSpec) -> Iterator[Metered]:
    """Measure nothing."""
    yield lambda result, _pids: result


class LocalExecutor(Lanes):
    """One lane on this machine."""

    def __init__(self, **settings: Any) -> None:
        """
        :param settings: see :class:`LocalLane`.
        """
        self.lane = LocalLane(**settings)
        super().__init__([self.lane])
