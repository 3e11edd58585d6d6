"""A training script as text: what it holds constant, found without running it, and rewritten in a
copy."""
