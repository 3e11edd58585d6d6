"""Find which of a script's printed texts hold a score or a curve."""
