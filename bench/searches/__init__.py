"""Searches that are compared with the product's own, in worlds whose truth is known."""
