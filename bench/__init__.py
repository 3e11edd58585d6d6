"""Benchmarks of the project itself, side by side with the alternatives that users have."""
