"""One training run: the step loop, the data and the evaluation protocol."""
