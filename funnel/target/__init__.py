"""Define what the cloud will train, and the proxies that represent it."""
