"""What every kind of work on a campaign needs, opened and closed together."""
