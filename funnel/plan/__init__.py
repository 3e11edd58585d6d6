"""Make the launch plan: recipes, layouts, checks, risks, and their files."""
