"""Confine trials by the kernel: Landlock, seccomp, limits, capabilities."""
