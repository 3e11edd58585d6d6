"""What measured scores can be believed to mean."""
