"""A case as Python text: the class `Graph` that is replayed, and that a repro script shows."""

from __future__ import annotations

import keyword
import linecache
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from tcdebug.minifier.case import Case

CLEANUP = re.compile(r";  [\w. =]+ = None$")
ANNOTATION = re.compile(r" : (torch\.Tensor|torch\.SymInt|torch\.nn\.parameter\.Parameter)")
PRIVATE = re.compile(r"torch\._C\._nn\.(\w+)")
NOISE = ("self", "modules", "parameters", "buffers", "L", "G", "l", "g", "fn", "closure")


@dataclass(frozen=True)
class Source:
    """The text of a class, and the objects that its names stand for.

    `foreign` are names that only the user's script can give: functions and objects of its own.
    """

    text: str
    names: Mapping[str, Any]
    foreign: tuple[str, ...]


def readable_names(case: Case) -> Case:
    """The case with short names: L_self_modules_fc1_parameters_weight_ becomes fc1_weight."""
    taken: set[str] = set()
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    result = graph.graph_copy(case.graph, copies)
    graph.output(result)
    renamed: dict[str, str] = {}
    for node in case.graph.nodes:
        if node not in copies:
            continue
        copy = copies[node]
        copy.meta = dict(node.meta)
        if node.op != "placeholder":
            continue
        name = _short(str(node.target), taken)
        renamed[str(node.target)] = name
        copy.target = name
        copy.name = name
    inputs = tuple(
        type(i)(renamed[i.name], i.value, i.dynamic, i.recipe) for i in case.inputs
    )
    return Case(fx.GraphModule(case.module, graph), inputs)


def _short(name: str, taken: set[str]) -> str:
    parts = [p for p in name.strip("_").split("_") if p and p not in NOISE]
    text = "_".join(parts) or "x"
    if text[0].isdigit() or keyword.iskeyword(text):
        text = f"x_{text}"
    candidate, count = text, 1
    while candidate in taken:
        candidate = f"{text}_{count}"
        count += 1
    taken.add(candidate)
    return candidate


def module_source(module: fx.GraphModule, name: str = "Graph") -> Source:
    """The graph of a module as a class with one method, `forward`."""
    code = module.graph.python_code("self")
    lines = [CLEANUP.sub("", line) for line in code.src.splitlines()]
    lines = [ANNOTATION.sub("", line).replace(" -> tuple", "") for line in lines]
    lines = [PRIVATE.sub(_public, line) for line in lines]
    start = next(k for k, line in enumerate(lines) if line.startswith("def forward"))
    body = [line for line in lines[start:] if line.strip() and not _alias(line)]
    text = f"class {name}(torch.nn.Module):\n" + "\n".join(f"    {line}" for line in body) + "\n"
    foreign = tuple(n for n, v in code.globals.items() if not _from_torch(v))
    return Source(text, dict(code.globals), foreign)


def _public(match: re.Match[str]) -> str:
    """torch.nn.functional.gelu for torch._C._nn.gelu, where they are one function."""
    name = match.group(1)
    public = getattr(torch.nn.functional, name, None)
    same = public is not None and public is getattr(torch._C._nn, name, None)
    return f"torch.nn.functional.{name}" if same else match.group(0)


def _alias(line: str) -> bool:
    """`x = x`, which renaming placeholders leaves behind."""
    left, equals, right = line.strip().partition(" = ")
    return bool(equals) and left == right


def _from_torch(value: Any) -> bool:
    if value in (float("inf"), float("nan")) or isinstance(value, float | int | type(None)):
        return True
    module = getattr(value, "__module__", None) or getattr(value, "__name__", "") or ""
    roots = ("torch", "_operator", "operator", "math", "builtins", "collections")
    return str(module).partition(".")[0] in roots or isinstance(value, torch.dtype | torch.device)


def load(case: Case, filename: str) -> torch.nn.Module:
    """The case as a module whose code Dynamo captures.

    Dynamo leaves generated code alone; text with a file name of its own is not generated to it.
    """
    source = module_source(case.module)
    linecache.cache[filename] = (
        len(source.text), None, source.text.splitlines(True), filename,
    )  # fmt: skip
    namespace: dict[str, Any] = {"torch": torch, **source.names}
    exec(compile(source.text, filename, "exec"), namespace)
    module: torch.nn.Module = namespace["Graph"]()
    for name, value in case.attributes().items():
        _set(module, name, value)
    return module


def _set(module: torch.nn.Module, name: str, value: Any) -> None:
    *path, last = name.split(".")
    for part in path:
        if not hasattr(module, part):
            setattr(module, part, torch.nn.Module())
        module = getattr(module, part)
    if isinstance(value, torch.Tensor) and not isinstance(value, torch.nn.Parameter):
        module.register_buffer(last, value)
    else:
        setattr(module, last, value)
