"""Plan for interruptions of a run: checkpoints, timeouts, and their flags."""
