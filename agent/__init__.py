"""Decides: what to try next and whether to keep it. Owns the command line."""
