"""Finds calls that could do damage in a script from which statements were removed."""

from __future__ import annotations

import ast
from collections.abc import Iterator

MODULES = frozenset({"shutil", "subprocess", "socket", "requests", "urllib", "ftplib", "smtplib"})
"""Modules none of whose functions are safe."""
OF_OS = frozenset(
    {
        "remove", "unlink", "rmdir", "removedirs", "rename", "renames", "replace", "system",
        "kill", "killpg", "truncate", "popen", "chmod", "chown", "posix_spawn", "execv", "execve",
        "execvp", "execl",
    }
)  # fmt: skip
"""Functions of os that change files or processes."""
METHODS = frozenset({"unlink", "rmdir", "rmtree", "rename"})
"""Methods of paths that remove or move a file."""


def destructive_calls(tree: ast.Module) -> list[str]:
    """Return the functions and modules in a script that a changed script must not use."""
    return sorted({name for node in ast.walk(tree) for name in _found(node)})


def _found(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (a.name for a in node.names if a.name.partition(".")[0] in MODULES)
    elif isinstance(node, ast.ImportFrom):
        module = (node.module or "").partition(".")[0]
        for alias in node.names:
            if module in MODULES or (module == "os" and alias.name in OF_OS):
                yield f"{module}.{alias.name}"
    elif isinstance(node, ast.Attribute):
        of_os = isinstance(node.value, ast.Name) and node.value.id == "os"
        if node.attr in METHODS or (of_os and node.attr in OF_OS):
            yield ast.unparse(node)
