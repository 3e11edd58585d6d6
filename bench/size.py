"""Print the product's size (``make size``): files, statements and syntax-tree nodes by package.

Statements alone flatter, since logic can move into expressions; so nodes count beside them.
"""

import ast
from collections import defaultdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

PACKAGES = ("agent", "autoresearch", "funnel", "trainer", "trajectory")


def size(path: Path) -> tuple[int, int, set[str]]:
    """Return a file's statements and nodes, docstrings not counted, and its public classes."""
    tree = ast.parse(path.read_text("utf-8"))
    nodes = list(ast.walk(tree))
    texts = [
        node
        for node in nodes
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    ]
    statements = sum(isinstance(node, ast.stmt) for node in nodes) - len(texts)
    classes = {
        node.name
        for node in tree.body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    }
    return statements, len(nodes) - 2 * len(texts), classes


def main() -> None:
    """Print the table."""
    table = Table("package", "files", "statements", "nodes")
    homes: defaultdict[str, list[Path]] = defaultdict(list)
    total = [0, 0, 0]
    for package in PACKAGES:
        files = sorted(Path(package).rglob("*.py"))
        sums = [len(files), 0, 0]
        for path in files:
            statements, nodes, classes = size(path)
            sums[1] += statements
            sums[2] += nodes
            for name in classes:
                homes[name].append(path)
        total = [a + b for a, b in zip(total, sums, strict=True)]
        table.add_row(package, *(f"{one:,}" for one in sums))
    table.add_row("all", *(f"{one:,}" for one in total))
    twice = sorted(name for name, paths in homes.items() if len(paths) > 1)
    console = Console()
    console.print(table)
    console.print(f"{len(twice)} public classes have a name that another module has: {twice}")


if __name__ == "__main__":
    main()
