"""The Python text of graphs and kernels: how it imports what it uses, and how it is run."""

from __future__ import annotations

import linecache
import re
import sys
import sysconfig
from types import ModuleType
from typing import Any

DOTTED = re.compile(r"\btorch(?:\.\w+)+")


def import_line(name: str, value: Any) -> str:
    """Return a line that defines a name anywhere; empty if only the user's script defines it."""
    if name in ("inf", "nan"):
        return f"from math import {name}"
    if isinstance(value, ModuleType):
        return _module_import(name, value.__name__)
    module = getattr(value, "__module__", None) or ""
    qualified = getattr(value, "__qualname__", "")
    if value is type(None):
        return f"{name} = type(None)"
    if not _installed(module) or not qualified.isidentifier():
        return ""
    if getattr(sys.modules.get(module), qualified, None) is not value:
        return ""
    return f"from {module} import {qualified}" + (f" as {name}" if name != qualified else "")


def _module_import(name: str, module: str) -> str:
    if not _installed(module):
        return ""
    return f"import {module}" + (f" as {name}" if name != module else "")


def _installed(module: str) -> bool:
    """Return whether a module belongs to the standard library or an installed package."""
    root = module.partition(".")[0]
    if root in sys.stdlib_module_names:
        return True
    file = getattr(sys.modules.get(root), "__file__", None) or ""
    folders = [sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), *sys.path]
    packages = ("site-packages", "dist-packages")
    return any(file.startswith(f"{f}/") for f in folders if f.endswith(packages))


def torch_imports(text: str) -> list[str]:
    """Return imports for parts of torch that `import torch` may not load."""
    found: set[str] = set()
    for dotted in DOTTED.findall(text):
        parts = dotted.split(".")
        module = next(
            m for k in range(len(parts), 0, -1) if (m := ".".join(parts[:k])) in sys.modules
        )
        if not module.startswith(("torch.ops", "torch._C", "torch.nn")) and module != "torch":
            found.add(f"import {module}")
    return sorted(found)


def run_text(text: str, filename: str, namespace: dict[str, Any]) -> None:
    """Run Python text so that Dynamo can capture the functions it defines.

    Dynamo skips generated code. A distinct file name keeps the text from being taken for that.
    """
    linecache.cache[filename] = (len(text), None, text.splitlines(True), filename)
    exec(compile(text, filename, "exec"), namespace)


def indentation(line: str) -> str:
    """Return the spaces before the text of a line."""
    return line[: len(line) - len(line.lstrip())]
