"""Measures: one TrialSpec in, one TrialResult out. Knows nothing of agents."""
