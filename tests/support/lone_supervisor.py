"""Run a supervisor in a process that a test may kill: ``lone_supervisor TRIAL_DIR``.

It prints the process id of its fork server, then runs the trial that the directory is armed with.
"""

import sys
from pathlib import Path

from tests.support import hostile
from tests.support.trials import trial_spec
from trainer.executors.local import LocalExecutor


def main() -> None:
    with LocalExecutor(entry=hostile.ENTRY, allow_unsandboxed=True) as executor:
        print(executor.lane.server.pid, flush=True)
        executor.run(trial_spec(), Path(sys.argv[1]))


if __name__ == "__main__":
    main()
