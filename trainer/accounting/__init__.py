"""What a training step does on a GPU, counted without one: see :mod:`trainer.accounting.step`."""
