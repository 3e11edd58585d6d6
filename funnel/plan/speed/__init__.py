"""How long a training step takes on rented GPUs, by arithmetic from published figures."""
