"""Convert trajectories: import other tools' files, and export tables and MLflow runs."""
