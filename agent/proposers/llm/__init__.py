"""The language model as a proposer: what it is asked, over which wire, and what it is believed."""
