"""Run a process of the same user that has no capabilities and does nothing: ``bystander``.

Root's capabilities would protect it from a trial, which has dropped most of its own; an ordinary
user's processes have no such protection. It prints a line once it is ready.
"""

import time

from trainer.isolation.kernel.libc import drop_capabilities


def main() -> None:
    drop_capabilities(keep=0)
    print("here", flush=True)
    time.sleep(120)


if __name__ == "__main__":
    main()
