"""Paper and ink for every figure."""
