"""Run the product's campaigns in worlds whose truth is known, with no trainer.

:mod:`~tests.support.simulated.world` defines a world, ``executor`` runs the product's trials in
    one, and ``night`` runs a whole campaign: the product's own loop, race, judge, rails and
    proposers.
"""
