"""Finds modules that a script reads as attributes of a package, and that its imports do not load.

The process that runs candidates has loaded more than a script imports. There, a version that has
lost `import torch.distributed.tensor` can still read `torch.distributed.tensor`.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator, Sequence
from types import ModuleType

LOADED = frozenset(
    f"torch.{name}"
    for name in (
        *("nn.functional", "nn.init", "nn.utils", "utils.checkpoint", "utils.data"),
        *("optim.lr_scheduler", "fx.experimental"),
    )
)
"""Modules that `import torch` loads in all supported versions, beside direct parts of torch."""
DIRECT = 2
"""The parts of the name of a direct part of a package. `import torch` loads those of torch."""
SECONDS = 60.0
FAILING = """
import sys
for name in sys.argv[2:]:
    try:
        exec(sys.argv[1] + f"\\n{name}")
    except AttributeError:
        print(name)
"""
"""Prints the modules that cannot be read after the imports in the first argument."""


def with_needed_imports(text: str) -> str:
    """Return the text of a script with an import of each module that it reads but never loads."""
    tree = ast.parse(text)
    imports = [node for node in tree.body if isinstance(node, ast.Import)]
    packages = {a.name for node in imports for a in node.names if a.asname is None}
    found = dict.fromkeys(m for node in ast.walk(tree) for m in _module_read(node))
    asked = [
        name
        for name in found
        if name.count(".") >= DIRECT
        and name not in LOADED
        and name.partition(".")[0] in packages
        and not any(f"{package}.".startswith(f"{name}.") for package in packages)
    ]
    needed = _not_loaded(imports, asked) if asked else []
    if not needed:
        return text
    last = max(node.end_lineno or 0 for node in imports)
    lines = text.splitlines()
    return "\n".join([*lines[:last], *(f"import {name}" for name in needed), *lines[last:]])


def _module_read(node: ast.AST) -> Iterator[str]:
    """Yield the name of an attribute if it is a module of the package that its name begins with."""
    if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
        name = ast.unparse(node)
        if isinstance(sys.modules.get(name), ModuleType):
            yield name


def _not_loaded(imports: Sequence[ast.Import], names: Sequence[str]) -> list[str]:
    """Return those names of modules that cannot be read in a fresh process after the imports."""
    first = "\n".join(ast.unparse(node) for node in imports)
    command = [sys.executable, "-c", FAILING, first, *names]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return []
    return done.stdout.split() if done.returncode == 0 else []
