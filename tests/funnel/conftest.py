from pathlib import Path

import pytest

from tests.support.configs import config
from tests.support.stressed import stressed_campaign


@pytest.fixture(scope="session")
def stressed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a campaign with three finalists, each trained for 1000 steps on two seeds."""
    configs = [config(lr=lr) for lr in (2e-3, 1.5e-3, 8e-4)]
    return stressed_campaign(tmp_path_factory.mktemp("stressed"), configs)
