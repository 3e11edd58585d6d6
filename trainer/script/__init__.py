"""Read a training script's constants without running it, and rewrite them in a copy."""
