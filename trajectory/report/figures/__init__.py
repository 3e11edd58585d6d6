"""Figures of the report: each module has one figure's values, picture and text. To add a figure,
add a module with a :class:`~trajectory.report.figures.figure.Figure`, and list it in
``registry.py``."""
