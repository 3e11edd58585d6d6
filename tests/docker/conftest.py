"""Provide the container engine that the tests of this folder share."""

from collections.abc import Iterator

import pytest

from tests.support.containers import Engine, why_not


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    directory = tmp_path_factory.mktemp("engine")
    reason = why_not(directory)
    if reason is not None:
        pytest.skip(reason)
    engine = Engine(directory)
    yield engine
    engine.close()
