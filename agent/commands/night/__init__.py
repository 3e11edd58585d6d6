"""Commands of a search: propose and measure, rank the best, check a reply, read a menu."""
