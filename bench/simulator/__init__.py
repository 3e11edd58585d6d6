"""Worlds made of real runs, and nights of search in them.

:mod:`bench.simulator.world` says what a world is, :mod:`bench.simulator.worlds` which there are,
:mod:`bench.simulator.executor` runs the product's trials in one, and
:func:`bench.simulator.night.night` is a campaign in it: the product's own loop, race, judge, rails
and proposers, with nothing of them copied. ``python -m bench.simulator`` compares searches and
rules over many nights.
"""
