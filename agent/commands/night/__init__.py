"""The commands of a night: propose and measure, look at the best, check a reply, read a menu."""
