"""Keep a run going: interruptions, checkpoints, timeouts, and their flags."""
