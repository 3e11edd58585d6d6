"""Proposers: sampler, random, llm, hybrid."""
