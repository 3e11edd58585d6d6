"""What a script prints: its texts, and which of them say a score or a curve."""
