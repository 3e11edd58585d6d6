"""Programs that go into a launch plan as they are: they need nothing of this project."""
