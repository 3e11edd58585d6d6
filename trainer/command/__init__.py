"""Trials that are any command: filled in, given a place, run, and read like a stranger."""
