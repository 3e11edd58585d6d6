"""Measure a machine's speed and memory over batch × sequence × precision, and what fits."""

from trainer.envelope.points import Cell, EnvelopePoint, EnvelopeSettings, PointsFile
from trainer.envelope.random_corpus import random_corpus, vocabulary_of
from trainer.envelope.sweep import Watcher, cells, sweep

__all__ = [
    "Cell",
    "EnvelopePoint",
    "EnvelopeSettings",
    "PointsFile",
    "Watcher",
    "cells",
    "random_corpus",
    "sweep",
    "vocabulary_of",
]
