"""What lanes give and cost: ``python -m bench --only lanes``, or ``python -m bench.lanes`` with
sizes. Each measurement is kept in a file, so that who stops goes on where it was."""
