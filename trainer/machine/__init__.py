"""Describe this machine: its devices, their memory, their speed."""
