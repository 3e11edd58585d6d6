"""Measures the project itself, side by side with what users would pick instead."""
