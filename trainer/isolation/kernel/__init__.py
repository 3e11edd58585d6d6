"""What the kernel enforces on a trial: Landlock, seccomp, limits, capabilities."""
