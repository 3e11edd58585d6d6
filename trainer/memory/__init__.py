"""Estimate the memory of training a config."""
