"""Ladders of sizes and lengths: measure how a recipe's loss changes as it grows."""
