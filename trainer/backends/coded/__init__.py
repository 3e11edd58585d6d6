"""Functions of a config's own inside the torch model."""
