"""Propose configs: sampler, random, language model, and their mixtures."""
