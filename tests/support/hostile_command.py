"""Attack from a script, with :mod:`tests.support.hostile` and :mod:`tests.support.kernel_attacks`.

A trial runs it as its command: ``python hostile_command.py OUT [TRIAL_DIR]``.
"""

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent


def main() -> None:
    # OUT lies among the trial's temporary files; the attacks use the trial's directory.
    trial_dir = Path(sys.argv[2]) if len(sys.argv) > 2 else Path(sys.argv[1]).parent.parent
    sys.path.insert(0, str(ROOT))
    from tests.support import hostile, kernel_attacks, world_attacks

    os.chdir(trial_dir)
    # Their attacks are among those that can be requested.
    assert kernel_attacks.ENTRY
    assert world_attacks.FORGED
    hostile.strike(trial_dir)


if __name__ == "__main__":
    main()
