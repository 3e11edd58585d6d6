"""Measure the worth of each of the winner's changes: undo it alone, on fresh seeds."""
