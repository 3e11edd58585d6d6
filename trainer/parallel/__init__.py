"""One recipe on several ranks: the same few steps under every parallelism, to be compared."""
