"""Import torch's store classes, which torch exports without declaring them."""

from __future__ import annotations

from torch.distributed import PrefixStore, TCPStore  # type: ignore[attr-defined]

__all__ = ["PrefixStore", "TCPStore"]
