"""Live page: a web server that shows campaigns while they run. It only reads, except that it can
write or remove a campaign's pause file."""
