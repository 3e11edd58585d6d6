"""Export a campaign to other tools: studies, tables, runs and training data."""
