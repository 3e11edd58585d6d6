"""Read other tools' records of runs: Optuna, MLflow, Weights & Biases and TensorBoard."""
