"""Check whether this machine, the language model and a cluster are ready."""
