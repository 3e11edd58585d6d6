"""From a journal, or another tool's file, to findings."""
