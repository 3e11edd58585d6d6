"""The live page: campaigns as they happen, for whoever looks in. It reads and changes nothing, but
for a campaign's pause file."""
