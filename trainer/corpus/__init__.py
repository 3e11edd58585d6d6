"""Turns text into the memory-mapped tokens that every trial of a campaign reads."""
