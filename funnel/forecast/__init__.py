"""How the large run's loss must fall, and whether it does."""
