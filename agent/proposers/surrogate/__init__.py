"""Model the scores of configs, to choose among candidates."""
