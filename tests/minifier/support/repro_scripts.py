"""Repro scripts that tests write, and what a script defines when it is read without being run."""

from __future__ import annotations

import ast
import math
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from tcdebug.minifier.cases.case import Case
from tcdebug.minifier.cases.outcome import Kind, Outcome
from tcdebug.minifier.reduction.details.simplify_inputs import SimplifyInputs
from tcdebug.minifier.repros.repro import Repro, write
from tcdebug.minifier.repros.script_setup import Script, script_setup

WRONG = Outcome(Kind.WRONG, "forward", "forward | wrong value", "output 0: 1 of 2 out of tolerance")
EXCEPTION = Outcome(Kind.EXCEPTION, "compile", "compile | KeyError", "KeyError: 'tanh'")
CRASH = Outcome(Kind.CRASH, "forward", "forward | SIGSEGV")
EAGER = {"backend": "aot_eager"}
PLANT = """
def planted(module, inputs):
    {body}


def set_up(then):
    torch._dynamo.register_backend(planted)
    then()
"""
"""The set-up of a repro with a backend that has a given body."""


def set_up_of(
    text: str, ordinal: int, folder: Path, patch: pytest.MonkeyPatch, *, entered: bool = False
) -> dict[str, Any]:
    """Return what the set-up of a repro defines, for a script with this text in the folder.

    The set-up stops at the graph with this ordinal. It will run in the folder.
    """
    patch.setenv("TCDEBUG_SESSION", "1")  # as the set-up itself does
    patch.setattr(sys, "path", [*sys.path])
    patch.chdir(folder)
    script = folder / "script.py"
    script.write_text(text)
    setup = script_setup(Script(str(script)), ordinal, folder, entered=entered)
    names: dict[str, Any] = {"__file__": str(folder / "repro.py"), "CALL": {"backend": None}}
    exec("import importlib, os, sys\nimport torch\n" + setup, names)  # as in a repro
    return names


def seeded(case: Case) -> Case:
    """Return the case with inputs that a seed gives, where that is possible."""
    simple = SimplifyInputs()
    return simple.apply(case, simple.edits(case)) or case


def written(case: Case, path: Path, content: Repro | None = None) -> tuple[str, str]:
    """Return the text of a repro script, and the origin of its inputs."""
    kind = write(case, content or Repro(WRONG, EAGER), path)
    return path.read_text(), kind


def namespace_of(path: Path) -> dict[str, Any]:
    """Return what a repro script defines, without running it."""
    names: dict[str, Any] = {"__file__": str(path), "__name__": "repro"}
    exec(compile(path.read_text(), str(path), "exec", dont_inherit=True), names)
    return names


def imported(text: str) -> set[str]:
    """Return what a script always imports. With --off it may import more."""
    roots: set[str] = set()
    body = ast.parse(text).body
    for node in [*body, *(n for tried in body if isinstance(tried, ast.Try) for n in tried.body)]:
        if isinstance(node, ast.Import):
            roots |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            roots.add(str(node.module).partition(".")[0])
    return roots


def linear(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return torch.relu(x @ w).sum(-1)


def checkpointed(x: torch.Tensor) -> torch.Tensor:
    return checkpoint(lambda y: (y @ y).sin(), x, use_reentrant=False).masked_fill(x > 0, -math.inf)
