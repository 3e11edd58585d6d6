"""Remembers: the append-only journal, the queryable history, their analysis."""
