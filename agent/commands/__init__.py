"""One module per command: parse, call a library function, print."""
