"""A campaign in other tools' forms: studies, tables, runs and training data."""
