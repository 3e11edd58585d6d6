"""The sampler against uniform edits and Optuna's samplers, in a world whose truth is known."""
