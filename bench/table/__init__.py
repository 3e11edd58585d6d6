"""A table of real trials of the cpu-tiny menu, from which nights of search can be simulated.

:mod:`bench.table.plan` says which trials, :mod:`bench.table.store` keeps them,
``python -m bench.table`` makes them, through the product's own executor, and goes on where it was
stopped. The text, budget and schedule are a cpu-tiny campaign's; the trials run on one thread each,
so that several fit beside each other.
"""
