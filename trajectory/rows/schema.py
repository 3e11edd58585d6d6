"""The version of the row format, and the one step that brings older rows up to it."""

from __future__ import annotations

import math
from typing import Any

SCHEMA = 4
"""In the first row of every journal. Readers accept all older ones, and refuse newer ones by that
row. 2 added the kinds ``stress`` and ``finalists``; 3 a proposal's ``restated``, and a decision's
``first_drop`` and ``no_effect``; 4 the kinds ``attribution``, ``ladder_plan``,
``ladder_prediction``, ``ladder``, ``confirm``, ``confirmed``, ``calibration`` and ``calibrated``, a
result's ``texts`` and ``looks_bpb``, the first row's ``z_drop``, ``hold_back``, ``train_tokens``,
``cooldown_steps``, ``average`` and ``cudnn_attention``, and campaigns of a command: its ``script``
and ``measure`` in place of a corpus, its configs and results, an iteration's ``lanes`` and a
trial's ``place``.

Fields named ``…_bpb``, and every ``delta``, hold *objectives* (:class:`trainer.spec.Measure`): of
the built-in trainer bits per byte, of a command its score, or its negative where the score is to
grow."""

_Z_DROP_BEFORE_4 = 1.0


_GONE = ("mixed_devices", "device_kinds")
"""Settings in the first row of versions before this one."""


def upgraded(first_row: dict[str, Any]) -> dict[str, Any]:
    """Return a first row of any format with the rules that campaigns of its version went by.

    All else that a later format added has a default, which says what older campaigns did. Settings
    that nothing reads any more are left out.
    """
    first_row = {name: value for name, value in first_row.items() if name not in _GONE}
    if "z_keep" not in first_row or "max_runs" not in first_row:
        return first_row
    z_drop = first_row.get("z_drop", _Z_DROP_BEFORE_4)
    try:
        first_drop = z_drop - first_row["z_keep"] / math.sqrt(first_row["max_runs"])
    except (TypeError, ValueError, ZeroDivisionError):  # the row's own types refuse it
        return first_row
    return {"z_drop": z_drop, "first_drop": first_drop} | first_row
