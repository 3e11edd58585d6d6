"""Commands between the search and the cloud run: long runs, cost, launch plan, verification."""
