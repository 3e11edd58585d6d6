"""The commands about the machine: is it ready, how fast is it, what text has it."""
