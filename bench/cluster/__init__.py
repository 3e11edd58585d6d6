"""Lanes on a Ray cluster of four nodes on this machine: how busy they are kept, what that costs the
driver, and what is left of a campaign after random kills. ``python -m bench --only cluster``, or
``python -m bench.cluster`` with sizes."""
