"""The rules by which a recipe that was tuned small and short is set for a large and long run."""
