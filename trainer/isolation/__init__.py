"""Run trials in sandboxed processes: start, monitor and end them, and trust nothing they write."""
