"""Fresh runs of a search's best, before anything is told of them."""
