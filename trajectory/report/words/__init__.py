"""How the page writes: texts, numbers, the table of iterations and what a row opens to."""
