"""What may be turned and how far, and the rails that hold a proposal to it."""
