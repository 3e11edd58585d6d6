"""Iterations in flight: proposed, raced side by side, and stored on disk until their rows are
written."""
