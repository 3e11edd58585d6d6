"""Provide the entry of a trial that has torch, like the real one."""

import torch  # noqa: F401 (so that the fork server imports it)

from tests.support.hostile import run

__all__ = ["run"]
