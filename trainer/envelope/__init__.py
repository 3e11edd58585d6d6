"""Measure a machine's speed and memory over batch × sequence × precision, and what fits."""

from trainer.envelope.envelope import ENVELOPE_FILE, DeviceUse, Envelope, MemoryFit, Residual, fit
from trainer.envelope.points import Cell, EnvelopePoint, EnvelopeSettings, PointsFile
from trainer.envelope.rail import FittedMemory, MemoryChoice, choose_memory, envelope_path
from trainer.envelope.random_corpus import random_corpus, vocabulary_of
from trainer.envelope.sweep import Wall, Watcher, cells, sweep, watched_sweep

__all__ = [
    "ENVELOPE_FILE",
    "Cell",
    "DeviceUse",
    "Envelope",
    "EnvelopePoint",
    "EnvelopeSettings",
    "FittedMemory",
    "MemoryChoice",
    "MemoryFit",
    "PointsFile",
    "Residual",
    "Wall",
    "Watcher",
    "cells",
    "choose_memory",
    "envelope_path",
    "fit",
    "random_corpus",
    "sweep",
    "vocabulary_of",
    "watched_sweep",
]
