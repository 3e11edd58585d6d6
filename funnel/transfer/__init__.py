"""Carry a recipe that was tuned on a small, short run to a large, long run."""
