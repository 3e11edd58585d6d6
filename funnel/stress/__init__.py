"""Long runs of the night's best, and what their curves say."""
