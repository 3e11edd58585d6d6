"""Define the target that the cloud will train, and the proxies that represent it."""
