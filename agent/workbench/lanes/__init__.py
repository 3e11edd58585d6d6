"""The lanes of a session: how many they are, opened, and shown while they work."""
