"""Send the loop's events to experiment trackers while it runs."""
