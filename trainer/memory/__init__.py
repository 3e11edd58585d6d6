"""What training a config holds in memory."""
