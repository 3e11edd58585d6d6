"""A model of what configs score, and the neighbours of good ones that it chooses among."""
