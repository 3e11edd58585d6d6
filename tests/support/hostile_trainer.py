"""Provide the entry of a trial whose fork server has imported the real trainer's modules."""

from __future__ import annotations

import trainer.training.child  # noqa: F401 (so that the fork server imports it)
from tests.support.hostile import run

__all__ = ["run"]
