"""Run a supervisor in a process that a test may kill: ``lone_supervisor TRIAL_DIR [DOOR]``.

It prints the process id of its fork server, then runs the trial that the directory is armed with,
through a door of :mod:`tests.support.doors`.
"""

import sys
from dataclasses import replace
from pathlib import Path

from tests.support import hostile
from tests.support.doors import TRAINER, WITHOUT
from tests.support.trials import by_command, trial_spec
from trainer.executors.local import LocalExecutor
from trainer.isolation.kernel.sandbox import Layers


def main() -> None:
    directory, door = Path(sys.argv[1]), (*sys.argv[2:], TRAINER)[0]
    layers, spec = Layers.detect(), trial_spec()
    if door == WITHOUT:
        layers = replace(layers, world=False)
    if door != TRAINER:
        spec = by_command(spec)
    with LocalExecutor(entry=hostile.ENTRY, layers=layers, allow_unsandboxed=True) as executor:
        print(executor.lane.server.pid, flush=True)
        executor.run(spec, directory)


if __name__ == "__main__":
    main()
