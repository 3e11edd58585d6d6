"""Check a campaign on four Ray nodes of this machine after random kills.

``python -m bench --only kills``, or ``python -m bench.cluster`` with sizes.
"""
