"""Each module draws one of the findings. Numbers come in finished; nothing is computed here."""
