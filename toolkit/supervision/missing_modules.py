"""The first import of a script, if the interpreter cannot find its module.

A wrong answer here would refuse a healthy script. The search therefore ends without an answer at
the first statement or module that may change what can be imported.
"""

from __future__ import annotations

import ast
import importlib
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, PathFinder
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path

LEAVES_IMPORTS_ALONE = ("torch", "torch.nn", "torch.nn.functional", "torch.optim", "numpy")
"""Modules that do not change what can be imported after them."""


@dataclass(frozen=True)
class MissingModule:
    """A module that a script imports, and the line of the import."""

    name: str
    line: int


def missing_module(script: Path, tree: ast.Module) -> MissingModule | None:
    """Return the first module that a script imports, if no interpreter like this one can find it.

    None if it can be found, or if that is not certain: the script may provide it in a way that only
    running the script shows. `tree` is the script's syntax tree. Nothing is imported.
    """
    if not _searches_as_a_script_does():
        return None
    importlib.invalidate_caches()
    folders = [str(script.parent.absolute()), str(script.resolve().parent)]
    for name, line in _leading_imports(tree):
        root = name.partition(".")[0]
        if PathFinder.find_spec(root, folders) is not None:
            return None
        try:
            found = find_spec(root)
        except Exception:  # the import hooks of other packages may raise anything
            return None
        if found is None:
            is_certain = root not in sys.modules and root not in sys.stdlib_module_names
            return MissingModule(root, line) if is_certain else None
        if not _leaves_imports_alone(name, found):
            return None
    return None


def _searches_as_a_script_does() -> bool:
    """Return whether this process has the module search path of a script that the same Python runs.

    Options such as -I and -s are not passed on to the process of the script.
    """
    flags = sys.flags
    differs = flags.isolated or flags.ignore_environment or flags.no_user_site or flags.no_site
    return not differs


def _leading_imports(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Yield the modules that a script imports before any other statement, with their lines."""
    for node in tree.body:
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.module, node.lineno
        elif not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
            return


def _leaves_imports_alone(name: str, found: ModuleSpec) -> bool:
    """Return whether the same modules can be found after this one has been imported."""
    if name in LEAVES_IMPORTS_ALONE:
        return not name.startswith("torch") or not _foreign_torch_backends()
    origin = found.origin or ""
    folders = {sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")}
    inside = [Path(origin).relative_to(f) for f in folders if Path(origin).is_relative_to(f)]
    return origin in ("built-in", "frozen") or _none_installed(inside)


def _none_installed(paths: Sequence[Path]) -> bool:
    """Return whether there are such paths below the standard library, and no installed package."""
    installed = {"site-packages", "dist-packages"}
    return bool(paths) and not any(installed & set(path.parts) for path in paths)


def _foreign_torch_backends() -> bool:
    """Return whether torch imports a package other than tcdebug at the end of its own import."""
    return any(entry.name != "tcdebug" for entry in entry_points(group="torch.backends"))
