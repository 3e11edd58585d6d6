"""Count the work of a training step on a GPU without a GPU: see
:mod:`trainer.envelope.counted_step`."""
