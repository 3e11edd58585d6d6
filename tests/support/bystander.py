"""A process of the same user, without capabilities, that does nothing: ``bystander``.

Root's capabilities would protect it from a trial, which has given most of its own up; an ordinary
user's processes have no such protection. Prints a line when it is there.
"""

from __future__ import annotations

import time

from trainer.isolation.kernel.capabilities import drop_capabilities


def main() -> None:
    drop_capabilities(keep=0)
    print("here", flush=True)
    time.sleep(120)


if __name__ == "__main__":
    main()
