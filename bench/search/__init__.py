"""Compare the sampler with uniform edits and Optuna's samplers, in a world of known truth."""
