"""The lanes of a sitting: how many they are, opened, and shown while they work."""
