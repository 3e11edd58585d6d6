"""Iterations in flight: asked for, raced side by side, on disk until their rows are."""
