"""Provide the entry of a trial whose fork server has imported the real trainer's modules."""

import trainer.training.child  # noqa: F401 (so that the fork server imports it)
from tests.support.hostile import run

__all__ = ["run"]
