"""Run any command as a trial: fill it in, prepare its working directory, run it, and read its
output as untrusted."""
