"""Scripts that are copied into a launch plan unchanged, and do not import this project."""
