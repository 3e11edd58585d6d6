"""A campaign as one page to read and argue from, and its figures as files.

    rows ──Ledger──▶ Findings (numbers, each with its n and interval) ──figures, page──▶ files

What is said is computed in the modules of this folder, without a chart in sight; ``figures/`` draws
those values, ``templates/`` words them. :func:`trajectory.report.report.write_report` does it all.
"""
