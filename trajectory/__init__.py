"""Store campaigns: the append-only journal, its queryable index, and their analysis."""
