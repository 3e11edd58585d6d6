"""Run trials in jobs of Slurm: one job per lane, which serves trials until Slurm ends it."""
