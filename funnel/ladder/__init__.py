"""Ladders of sizes and lengths: what a recipe comes to as it grows, measured."""
