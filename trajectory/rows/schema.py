"""Versions of the row format."""

from __future__ import annotations

SCHEMA = 4
"""Version of the row format, in the first row of every journal. Readers accept all older ones, and
refuse newer ones by that row. 2 added the kinds ``stress`` and ``finalists``; 3 a proposal's
``restated``, and a decision's ``first_drop`` and ``no_effect``; 4 the kinds ``attribution``,
``ladder_plan``, ``ladder_prediction``, ``ladder``, ``confirm``, ``confirmed``, ``calibration`` and
``calibrated``, a result's ``texts`` and ``looks_bpb``, the first row's ``z_drop``, ``hold_back``,
``train_tokens``, ``cooldown_steps``, ``average``, ``cudnn_attention``, ``mixed_devices`` and
``device_kinds``, and campaigns of a command: its ``script`` and ``measure`` in place of a corpus,
its configs and results, an iteration's ``lanes`` and a trial's ``place``.

Fields named ``…_bpb``, and every ``delta``, hold *objectives* (:class:`trainer.spec.Measure`): of
the built-in trainer bits per byte, of a command its score, or its negative where the score is to
grow."""
STRESS_SCHEMA, ITERATION_SCHEMA, OUTSIDE_SCHEMA, LANES_SCHEMA = 2, 3, 4, 4
"""What a reader must know for rows of a stress test, for an iteration's as they are now, for those
of an attribution, a ladder, a confirmation or a calibration, and for those of several lanes."""
