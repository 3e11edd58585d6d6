"""One module per command group: parse, call a library function, print."""
