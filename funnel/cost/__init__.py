"""Cost of desktop units owned and of GPUs rented."""
