"""What a command's Python finds first on its path: ``sitecustomize``, which Python imports."""
