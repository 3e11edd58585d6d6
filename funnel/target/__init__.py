"""What the cloud will train, and the proxies that stand in for it."""
