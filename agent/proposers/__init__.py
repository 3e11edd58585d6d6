"""Proposers: sampler, random, llm, hybrid, scripted."""
