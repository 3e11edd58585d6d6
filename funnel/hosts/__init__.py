"""A recipe on several hosts of one's own: does it train alike, and what does their link carry."""
