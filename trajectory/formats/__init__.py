"""How trajectories travel: other tools' files in, tables and other tools' stores out."""
