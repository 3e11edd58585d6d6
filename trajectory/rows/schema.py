"""Define the version of the row format, and upgrade older rows to it."""

from __future__ import annotations

import math
from typing import Any

SCHEMA = 4
"""Version of the row format, in the first row of every journal.

Readers accept all older versions and refuse newer ones by that row. Version 2 added the kinds
``stress`` and ``finalists``. Version 3 added a proposal's ``restated``, and a decision's
``early_stopping_threshold`` and ``no_effect``. Version 4 added:

- the kinds ``attribution``, ``ladder_plan``, ``ladder_prediction``, ``ladder``, ``confirm``,
  ``confirmed``, ``calibration`` and ``calibrated``;
- a result's ``texts`` and ``checkpoints_bpb``, and the event ``stopped``;
- the first row's ``z_drop``, ``reserve_holdout``, ``train_tokens``, ``cooldown_steps``,
  ``average`` and ``cudnn_attention``;
- campaigns of a command: ``script`` and ``measure`` instead of a corpus, their configs and results,
  an iteration's ``lanes`` and a trial's ``place``;
- a proposer's ``arm``, ``expected``, ``prediction``, ``author`` and ``queue_id``.

Fields named ``…objective``, and every ``delta``, hold *objectives* (:class:`trainer.spec.Measure`):
bits per byte for the built-in trainer, and for a command its score, or the negative of a score to
maximize. Fields named ``…_bpb`` hold bits per byte.
"""

_Z_DROP_BEFORE_4 = 1.0


_GONE = ("mixed_devices", "device_kinds")
"""Settings in the first row of earlier versions that nothing reads any more."""
_RENAMED = {"first_drop": "early_stopping_threshold", "hold_back": "reserve_holdout"}
"""Settings in the first row under their former names."""


def upgraded(first_row: dict[str, Any]) -> dict[str, Any]:
    """Return a first row of any format, with the rules that campaigns of its version followed.

    Every other field of a later format has a default that describes older campaigns. Settings that
    nothing reads any more are left out, and renamed ones get their present names. Fields of other
    rows declare their former names themselves, as validation aliases.
    """
    first_row = {
        _RENAMED.get(name, name): value for name, value in first_row.items() if name not in _GONE
    }
    if "z_keep" not in first_row or "max_runs" not in first_row:
        return first_row
    z_drop = first_row.get("z_drop", _Z_DROP_BEFORE_4)
    try:
        threshold = z_drop - first_row["z_keep"] / math.sqrt(first_row["max_runs"])
    except (TypeError, ValueError, ZeroDivisionError):  # validation will refuse the row
        return first_row
    return {"z_drop": z_drop, "early_stopping_threshold": threshold} | first_row
