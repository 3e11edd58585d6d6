"""Confirm a search's best configs by fresh runs, before anything is reported of them."""
