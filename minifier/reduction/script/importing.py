"""Reads what a script imports from a module through the name of the package."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tcdebug.minifier.reduction.script.rewriting import Rewrite, SyntaxReduction


class ImportsByPackage(SyntaxReduction):
    """Replaces names that are imported from parts of a package by attributes of the package.

    With `import torch`, `from torch import nn` goes, and `nn.Linear` becomes `torch.nn.Linear`.
    Imports from a private module stay, such as `from torch._functorch.aot_autograd import f`: the
    import of the package rarely loads it. It is an attribute of the package in the process that
    runs candidates, where other code has loaded it, but not in a fresh one.
    """

    name = "imports_by_package"

    def rewrites(self, tree: ast.Module) -> list[Rewrite]:
        """Return one edit for each name that is imported from a package that has a name."""
        packages = {
            alias.name
            for s in tree.body
            if isinstance(s, ast.Import)
            for alias in s.names
            if alias.asname is None and "." not in alias.name
        }
        names = [n for n in ast.walk(tree) if isinstance(n, ast.Name)]
        found = []
        for statement, alias, bound, path in _imported(tree):
            uses = [n for n in names if n.id == bound]
            if path[0] not in packages or not all(isinstance(n.ctx, ast.Load) for n in uses):
                continue
            if any(part.startswith("_") for part in path[:-1]):
                continue
            only = len(statement.names) == 1
            removed: ast.AST = statement if only else alias
            found.append(Rewrite(((removed, ()), *((n, (_attribute(path),)) for n in uses))))
        return found


def _imported(
    tree: ast.Module,
) -> Iterator[tuple[ast.Import | ast.ImportFrom, ast.alias, str, list[str]]]:
    """Yield the imports of parts of packages, with the name and the path of each part."""
    for statement in tree.body:
        match statement:
            case ast.ImportFrom(module=str(module), names=names, level=0):
                for alias in names:
                    if alias.name != "*":
                        path = [*module.split("."), alias.name]
                        yield statement, alias, alias.asname or alias.name, path
            case ast.Import(names=names):
                for alias in names:
                    if alias.asname is not None and "." in alias.name:
                        yield statement, alias, alias.asname, alias.name.split(".")


def _attribute(path: list[str]) -> ast.expr:
    value: ast.expr = ast.Name(path[0], ast.Load())
    for name in path[1:]:
        value = ast.Attribute(value, name, ast.Load())
    return value
