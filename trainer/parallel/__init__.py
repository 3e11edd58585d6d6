"""Train the same few steps of one recipe on several ranks under every parallelism, for
comparison."""
