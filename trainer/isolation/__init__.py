"""Trials in sandboxed processes of their own: started, watched, ended, believed in nothing."""
