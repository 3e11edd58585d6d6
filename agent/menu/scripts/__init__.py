"""A menu drafted from a training script, which is read as text and never run.

:mod:`~agent.menu.scripts.reading` finds the options, by whichever means the script takes them;
:mod:`~agent.menu.scripts.roles` says of each what it is for, and :mod:`~agent.menu.scripts.domains`
how far it may be turned; :mod:`~agent.menu.scripts.printed` finds the lines that say the score;
:mod:`~agent.menu.scripts.draft` writes it all down for a person to prune.
"""
