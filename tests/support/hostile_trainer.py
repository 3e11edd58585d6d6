"""The entry of a trial whose fork server has imported what the real one imports."""

from __future__ import annotations

import trainer.training.child  # noqa: F401 (so that the fork server imports it)
from tests.support.hostile import run

__all__ = ["run"]
