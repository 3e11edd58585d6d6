"""The loop and its parts: campaigns, trials, races, decisions."""
