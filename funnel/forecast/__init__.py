"""Forecast the large run's loss and compare the run with its forecast."""
