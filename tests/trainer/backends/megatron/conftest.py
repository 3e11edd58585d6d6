"""Megatron-Core on a CPU."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.megatron_on_cpu import one_rank


@pytest.fixture
def on_cpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with one_rank(monkeypatch):
        yield
