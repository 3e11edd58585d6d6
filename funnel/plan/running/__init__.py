"""What keeps a run going: interruptions, checkpoints, timeouts, and the flags of those."""
