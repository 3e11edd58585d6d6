"""Megatron-Core on a CPU."""

from collections.abc import Iterator

import pytest

from tests.support.megatron_on_cpu import one_rank


@pytest.fixture
def on_cpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with one_rank(monkeypatch):
        yield
