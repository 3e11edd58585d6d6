"""Draft a menu from a training script, which is parsed and never run.

:mod:`~agent.menu.scripts.reading` finds the options, however the script takes them.
    :mod:`~agent.menu.scripts.option` decides what each is for, and
    :mod:`~agent.menu.scripts.domains` its domain. :mod:`~agent.menu.scripts.printed` finds the
    lines that print the score. :mod:`~agent.menu.scripts.draft` combines the results into a menu
    for a person to prune.
"""
