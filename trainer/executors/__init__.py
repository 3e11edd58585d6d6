"""Where trials run: the seam (base), this machine (local), and the one place that chooses."""
