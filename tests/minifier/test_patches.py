"""tcdebug's patches of torch: all fit this version, and nothing is patched anywhere else."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tcdebug.compiler.patching import SUPPORTED, Patch, misfit
from tcdebug.minifier.patches import PATCHES

ROOT = Path(__file__).parents[2]
LAYERS = ("compiler", "minifier", "toolkit")
SOURCES = [path for layer in LAYERS for path in (ROOT / layer).rglob("*.py")]


@pytest.mark.parametrize("patch", PATCHES, ids=str)
def test_every_patch_fits_this_torch(patch: Patch) -> None:
    assert misfit(patch) == ""
    assert patch.seen == SUPPORTED
    assert patch.purpose


def test_every_attribute_is_declared_once() -> None:
    assert [name for name, count in Counter(map(str, PATCHES)).items() if count > 1] == []


def test_every_declared_patch_is_listed() -> None:
    targets = ROOT / "minifier" / "targets"
    families = [targets / name / "__init__.py" for name in ("autograd", "dynamo", "inductor")]
    tables = [ROOT / "minifier" / "patches.py", *families]
    listed = "".join(table.read_text() for table in tables)
    declaring = [path for path in SOURCES if re.search(r"\bPatch\(", path.read_text())]
    assert ROOT / "minifier" / "targets" / "dynamo" / "frame.py" in declaring
    assert [p for p in declaring if f"*{p.stem}.PATCHES" not in listed] == []


def replaced(path: Path) -> Iterator[str]:
    """Yield attributes of imported objects that a file assigns to or deletes."""
    tree = ast.parse(path.read_text())
    imported = {
        (alias.asname or alias.name).partition(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    for node in ast.walk(tree):
        stored = isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store | ast.Del)
        called = isinstance(node, ast.Call) and ast.unparse(node.func) in ("setattr", "delattr")
        target = node if stored else node.args[0] if called else None  # type: ignore[attr-defined] # as tested
        if target is not None and ast.unparse(target).partition(".")[0] in imported:
            yield ast.unparse(target)


def test_nothing_is_patched_outside_the_patching_module() -> None:
    # These are state, not code. A judge leaves the backward pass in which it was forked, and a
    # process of the fuzzer leaves the transforms of a program that has ended.
    state = {
        "sys.argv",
        "sys.path",
        "sys.dont_write_bytecode",
        "tempfile.tempdir",
        "compiled_autograd.in_compiled_autograd_region",
        "forward_ad._current_level",
    }
    found = {(p.name, name) for p in SOURCES for name in replaced(p) if name not in state}
    assert found == set()


def test_an_assignment_to_an_imported_object_is_found(tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text(
        "import torch._dynamo\n"
        "from torch import autograd as a\n"
        "def f(own):\n"
        "    torch._dynamo.optimize = f\n"
        "    setattr(a, 'grad', f)\n"
        "    own.name = 1\n"
    )
    assert sorted(replaced(path)) == ["a", "torch._dynamo.optimize"]
