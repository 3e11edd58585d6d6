"""Is everything ready: this machine, the model that proposes, a cluster."""
