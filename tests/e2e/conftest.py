"""Share one Ray cluster of two nodes among the end-to-end tests that run on one."""

from collections.abc import Iterator

import pytest

from tests.support.ray_clusters import LocalCluster, local_cluster


@pytest.fixture(scope="session")
def cluster() -> Iterator[LocalCluster]:
    with local_cluster("spark1", "spark2") as cluster:
        yield cluster
