"""A cluster's lanes as one executor."""

from __future__ import annotations

from trainer.executors.lanes import Lane, Lanes
from trainer.executors.ray.cluster import RayCluster
from trainer.executors.ray.lane import RayLane


class ClusterLane(Lane):
    """A lane on a node, which may be away for long."""

    def __init__(self, ray_lane: RayLane) -> None:
        super().__init__(ray_lane.place, ray_lane)
        self._ray_lane = ray_lane

    def mend(self) -> bool:
        """See :meth:`Lane.mend`."""
        return self._ray_lane.mend()


class ClusterLanes(Lanes):
    """All lanes of a campaign on a cluster, and the connection to it."""

    def __init__(self, cluster: RayCluster, lanes: list[RayLane]) -> None:
        super().__init__([ClusterLane(lane) for lane in lanes])
        self._cluster = cluster

    def close(self) -> None:
        """See :meth:`Executor.close`."""
        super().close()
        self._cluster.close()
