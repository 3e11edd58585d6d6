"""The history: an index of the journal that answers questions without reading it whole."""
