"""The environment, and the settings of a campaign."""
