"""Texts and numbers as the page writes them, and the table of iterations with its details."""
