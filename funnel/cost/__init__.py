"""The money: desktop units owned against GPUs rented."""
