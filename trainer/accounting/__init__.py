"""What a training step does on a GPU, counted without one: see
:mod:`trainer.envelope.counted_step`."""
