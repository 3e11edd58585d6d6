"""Each module is one figure: its values, its picture, its words. To add one: a module here with a
:class:`~trajectory.report.figures.figure.Figure`, and its line in ``registry.py``."""
