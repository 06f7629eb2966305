"""The installed torch has a private name exactly if docs/private-torch.md says so."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Callable, Mapping
from functools import reduce
from pathlib import Path

import pytest
import torch
from torch.fx.experimental.sym_node import SymNode

ROW = re.compile(r"^\| `([^`]+)` \|.*\| (2\.\d+) to (2\.\d+) \|$", re.MULTILINE)
PAGE = (Path(__file__).parents[1] / "docs" / "private-torch.md").read_text()
ROWS = sorted(set(ROW.findall(PAGE)))

NOT_IMPORTED: Mapping[str, Callable[[], bool]] = {
    "_boxed_call": lambda: hasattr(
        importlib.import_module("functorch.compile").make_boxed_func(print), "_boxed_call"
    ),
    "_schema": lambda: hasattr(torch.ops.aten.add.Tensor, "_schema"),
    "shape_env": lambda: "shape_env" in inspect.signature(SymNode.__init__).parameters,
    "node.hint": lambda: hasattr(SymNode, "hint"),
    "_TorchCompileWrapper": lambda: hasattr(torch, "_TorchCompileWrapper"),
    "_TorchCompileInductorWrapper": lambda: hasattr(torch, "_TorchCompileInductorWrapper"),
}
"""Attributes of objects, and whether this torch has them."""

OF_GPUS = {"torch._C._cuda_getCurrentRawStream"}
"""Names that a CPU build does not have."""


def minor(version: str) -> int:
    """15 for 2.15."""
    return int(version.split(".")[1])


def is_there(name: str) -> bool:
    """Whether the installed torch has a private name."""
    if name in NOT_IMPORTED:
        return NOT_IMPORTED[name]()
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        try:
            module = importlib.import_module(".".join(parts[:count]))
        except ImportError:
            continue
        try:
            reduce(getattr, parts[count:], module)
        except AttributeError:
            return False
        return True
    return False


def test_every_row_says_in_which_versions_its_name_was_seen() -> None:
    assert len(ROW.findall(PAGE)) == len(re.findall(r"^\| `", PAGE, re.MULTILINE))
    assert {version for _, *versions in ROWS for version in versions} <= {
        "2.11", "2.12", "2.13", "2.14", "2.15",
    }  # fmt: skip


@pytest.mark.parametrize(("name", "first", "last"), ROWS, ids=[name for name, _, _ in ROWS])
def test_a_private_name_is_where_the_page_says(name: str, first: str, last: str) -> None:
    if name in OF_GPUS and torch.version.cuda is None:
        pytest.skip("a build of torch for CPUs")
    seen = minor(first) <= minor(str(torch.__version__)) <= minor(last)
    assert is_there(name) == seen


def test_a_private_name_that_torch_removed_is_noticed() -> None:
    assert not is_there("torch._inductor.scheduler.Gone")
    assert not is_there("torch._gone.module.name")
    assert any(map(is_there, ["torch._inductor.scheduler.Scheduler"]))
