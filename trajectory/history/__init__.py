"""Keep the history: an index of the journal that answers queries without reading it whole."""
