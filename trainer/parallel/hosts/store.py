"""torch's store, which torch exports without saying so."""

from __future__ import annotations

from torch.distributed import PrefixStore, TCPStore  # type: ignore[attr-defined]

__all__ = ["PrefixStore", "TCPStore"]
