"""Commands about the machine: its readiness, its speed and its prepared text."""
