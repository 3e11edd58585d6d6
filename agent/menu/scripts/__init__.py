"""Draft a menu from a training script: from its own parser, its text, and what a run prints.

:mod:`~agent.menu.scripts.reported` takes the options that the script's parser reported, and
:mod:`~agent.menu.scripts.reading` its constants and variables. :mod:`~agent.menu.scripts.option`
decides what each is for, and :mod:`~agent.menu.scripts.domains` its domain.
:mod:`~agent.menu.scripts.metrics` finds the score. :mod:`~agent.menu.scripts.draft` combines the
results into a menu for a person to prune, and :mod:`~agent.menu.scripts.update` updates one.
"""
