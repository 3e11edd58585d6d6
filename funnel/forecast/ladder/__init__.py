"""The forecast that rests on a ladder, and what a comparison with it would catch."""
