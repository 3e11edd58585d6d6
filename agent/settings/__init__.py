"""Settings of a campaign, and settings from the environment."""
