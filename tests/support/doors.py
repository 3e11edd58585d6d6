"""Name the ways in which code gets to run in a trial, and the errors that stop it there."""

import errno
from typing import Any

TRAINER, IN_A_WORLD, WITHOUT = "trainer", "command", "command without namespaces"
"""The built-in trainer, a menu's command in a world of its own, and one where no namespaces can be
had."""
UNREACHABLE = {errno.EACCES, errno.EPERM, errno.ENOENT, errno.EROFS, errno.ESRCH}


def unreachable(loot: Any) -> bool:
    """Return whether the attack was denied, or has nothing to attack in its world."""
    return isinstance(loot, dict) and loot.get("errno") in UNREACHABLE
