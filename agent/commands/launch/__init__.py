"""The commands between the night and the cloud: long runs, money, plan, verification."""
