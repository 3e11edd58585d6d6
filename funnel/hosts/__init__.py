"""Compare one recipe on several of the user's own hosts, and measure the link between them."""
