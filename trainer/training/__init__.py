"""One training run: the step loop, the data, the ruler."""
