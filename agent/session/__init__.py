"""Sessions: everything that work on a campaign needs, opened and closed together."""
