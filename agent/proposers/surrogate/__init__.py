"""A model of what configs score, for whoever chooses among configs."""
