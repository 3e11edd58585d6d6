"""Estimate true scores, their noise and their rank correlations from measured scores."""
