"""Figures of the report: each module has the values, picture and text of a figure, or of two on one
subject. To add a figure, add a :class:`~trajectory.report.figures.figure.Figure`, and list it in
``trajectory/report/report.py``."""
