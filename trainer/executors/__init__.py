"""Run trials: the interface (base), this machine (local), a cluster (ray), and the choice."""
