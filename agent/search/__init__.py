"""The loop and what it is made of: campaigns, trials, races, decisions."""
