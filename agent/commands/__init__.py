"""Commands, one module each or one for a few of a topic: parse, call a library function, print."""
