"""Two versions of the loop on the same menu with the same campaign seeds, in real trials."""
