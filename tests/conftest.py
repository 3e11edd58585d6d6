"""Configure how property tests draw their cases.

``make test`` and CI draw the same cases every time, so that an installation's test result does not
depend on luck or load. ``make explore`` draws new cases, more of them, from seeds that it prints.
Neither keeps anything between runs, so the command alone determines the cases.
"""

from __future__ import annotations

import signal

from hypothesis import HealthCheck, settings

# A shell without job control starts background processes with SIGINT ignored, nohup with SIGHUP.
# The programs that these tests start would inherit that, and miss the signals that tests send them.
for number, default in (
    (signal.SIGINT, signal.default_int_handler),
    (signal.SIGHUP, signal.SIG_DFL),
):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, default)

settings.register_profile(
    "repeatable",
    derandomize=True,
    database=None,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "explore",
    settings.get_profile("repeatable"),
    derandomize=False,
    max_examples=500,
)
settings.register_profile("quick", settings.get_profile("repeatable"), max_examples=10)
settings.load_profile("repeatable")
