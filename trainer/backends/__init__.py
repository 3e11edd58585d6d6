"""Where models come from: one module per backend."""
