"""What a language model adds to a night of search, and what a useless one costs.

:mod:`bench.models.turns` is the bandit alone, :mod:`bench.models.stand_ins` are models whose worth
is known, :mod:`bench.models.policies` the ways to give them turns, :mod:`bench.models.nights` the
nights in a simulated world, and :mod:`bench.models.prompt_size` how long a prompt is by a real
model's own count.
``python -m bench --only models`` runs it all.
"""
