"""Compute the time of a training step on rented GPUs from published figures."""
