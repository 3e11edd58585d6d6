"""First directory on the path of a command's Python, which imports its ``sitecustomize``."""
