"""Long runs of the search's best configs, and verdicts on their curves."""
