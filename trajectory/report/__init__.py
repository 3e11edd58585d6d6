"""Report of a campaign: one HTML page, and its figures as files.

    journal ──ledger.py──▶ Findings ──figures/──▶ values, pictures, words ──▶ page and files

``report.py`` lists the figures. Each has its values, their n and intervals, its
drawing and its text. ``templates/`` has the page around them.
:func:`trajectory.report.report.write_report` writes the page and the files.
"""
