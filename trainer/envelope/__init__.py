"""Measure a machine's speed and memory over batch × sequence × precision, and what fits."""
