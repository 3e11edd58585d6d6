"""The launch plan: recipes, layouts, checks, risks, and the files of all that."""
