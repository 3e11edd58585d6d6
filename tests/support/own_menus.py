"""Provide the smallest menu whose trials run a command."""

OWN_MENU = """
name = "own"
[trainer]
command = ["{python}", "train.py", "--lr={lr}"]
score = { pattern = 'loss ([-+0-9.eE]+)' }
unit = "nats per token"
[knobs.lr]
type = "float"
low = 0.001
high = 1.0
default = 0.5
"""
