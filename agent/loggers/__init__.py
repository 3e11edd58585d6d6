"""What happens in a loop, sent to an experiment tracker while it happens."""
