"""Fresh runs of a search's best, before anything is reported of them."""
