"""A campaign as one page to read and argue from, and its figures as files.

    journal ──reading/──▶ Findings ──figures/──▶ values, pictures, words ──▶ page and files

``figures/registry.py`` lists the figures, each a module that holds its values, with their n and
intervals, how they are drawn and what is said of them; ``templates/`` has the page around them.
:func:`trajectory.report.report.write_report` does it all.
"""
