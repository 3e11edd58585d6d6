"""Define the knobs that proposals may change, their domains, and the rails that check proposals."""
