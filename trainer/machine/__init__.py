"""What this machine is and has: its devices, their memory, their speed."""
