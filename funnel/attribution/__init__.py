"""What each of the winner's changes was worth: taken back alone, on fresh seeds."""
