"""Combine a cluster's lanes into one executor."""

from __future__ import annotations

from typing import Any, Self

from trainer.executors.lanes import Lane, Lanes
from trainer.executors.ray.cluster import RayCluster
from trainer.executors.ray.lane import RayLane
from trainer.executors.ray.parcels import Parcel


class ClusterLane(Lane):
    """A lane on a node that may be unreachable for long."""

    def __init__(self, ray_lane: RayLane) -> None:
        super().__init__(ray_lane.place, ray_lane)
        self._ray_lane = ray_lane

    def reopen(self) -> bool:
        """See :meth:`Lane.reopen`."""
        return self._ray_lane.reopen()


class ClusterLanes(Lanes):
    """All lanes of a campaign on a cluster, and the connection to it."""

    def __init__(
        self,
        cluster: RayCluster,
        lanes: list[RayLane],
        refused: dict[str, str],
    ) -> None:
        self.kind = lanes[0].place.device or ""
        """The kind of their devices."""
        super().__init__([ClusterLane(lane) for lane in lanes])
        self._cluster = cluster
        self.refused = refused
        """Reasons why nodes are unfit, by their names."""

    @classmethod
    def opened(
        cls,
        address: str | None,
        lanes: int | None,
        *,
        parcel: Parcel,
        **asked: Any,
    ) -> Self:
        """Connect and open lanes; see :meth:`RayCluster.open_lanes`.

        :param parcel: the files to send to nodes; closed once Ray has them.
        """
        with parcel:
            cluster = RayCluster(address, parcel=parcel)
        try:
            return cls(cluster, *cluster.open_lanes(lanes, **asked))
        except BaseException:
            cluster.close()
            raise

    def describe(self) -> str:
        """See :meth:`Executor.describe`."""
        return self._lanes[0].executor.describe().partition(": ")[2] + ", by Ray"

    def close(self) -> None:
        """See :meth:`Executor.close`."""
        super().close()
        self._cluster.close()
