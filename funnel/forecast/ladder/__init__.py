"""Forecast the target's run from a ladder, and state which faults a comparison would catch."""
