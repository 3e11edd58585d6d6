"""Measuring beside other work: only what nobody else wants of the machine, and one core of it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from threadpoolctl import threadpool_limits


def be_idle() -> None:
    """From now on this process runs where a core would be idle; elsewhere than on Linux as nicely
    as can be."""
    if hasattr(os, "SCHED_IDLE"):
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    else:
        os.nice(19)


@contextmanager
def one_thread() -> Iterator[None]:
    """Matrices of a hundred rows gain nothing from more, and threads that wait for each other cost
    as much as those that work."""
    with threadpool_limits(1):
        yield
