"""Observes the kernels of inductor: hooks in the wrapper that it writes for a graph."""

from __future__ import annotations

import ast
import contextlib
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from typing import Any

from torch import fx
from torch._inductor import config

from tcdebug.compiler.events.schema import Fallback
from tcdebug.compiler.patching import Patch, patched
from tcdebug.minifier.cases.case import copy_module
from tcdebug.minifier.targets.inductor.higher_order.attention import POST_GRAD
from tcdebug.minifier.targets.inductor.settings import uncached
from tcdebug.minifier.trace.compile_direction import compile_direction
from tcdebug.minifier.trace.inductor_code import built_kernels
from tcdebug.minifier.values.observation import Observation
from tcdebug.minifier.values.observed_graph import Access, Kernels, ObservedGraph
from tcdebug.minifier.values.program import ObservedProgram
from tcdebug.minifier.values.reference import ReferenceGraph, updates_memory
from tcdebug.minifier.values.wrapper_code import (
    AFTER,
    BEFORE,
    RETURN,
    Effect,
    Statement,
    instrument,
)

MODULE = Patch(
    "torch._inductor.graph:GraphLowering",
    "compile_to_module",
    "tcdebug values sees no kernels of inductor",
)
PATCHES = (MODULE,)

CPP_PARAMETERS = re.compile(r'extern "C"[^(]*?\bkernel\((.*?)\)', re.DOTALL)
TRITON_PARAMETERS = re.compile(r"^def \w+\((.*?)\):", re.MULTILINE | re.DOTALL)
IN_OUT = re.compile(r"in_out_ptr\d+")
ENTRY = "call"


@contextlib.contextmanager
def inductor_observed(observation: Observation) -> Iterator[None]:
    """Observe the graphs that inductor compiles in this block.

    Random numbers are drawn as in eager, so that they are values like any other.
    """
    befores: list[fx.GraphModule] = []
    depth: list[int] = []

    def passes(original: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(original)
        def run(gm: fx.GraphModule, *args: Any, **kwargs: Any) -> Any:
            if not depth:
                befores.append(copy_module(gm))
            depth.append(1)
            try:
                return original(gm, *args, **kwargs)
            finally:
                depth.pop()

        return run

    def modules(original: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(original)
        def compile_to_module(lowering: Any, *args: Any, **kwargs: Any) -> Any:
            made = original(lowering, *args, **kwargs)
            before = befores.pop() if befores else None
            befores.clear()
            _observe(observation, lowering, made, before)
            return made

        return compile_to_module

    with (
        uncached(observation.log),
        config.patch(fallback_random=True),
        patched(POST_GRAD, passes, observation.log),
        patched(MODULE, modules, observation.log),
    ):
        yield


def _observe(
    observation: Observation, lowering: Any, made: Any, before: fx.GraphModule | None
) -> None:
    """Replace the entry of a compiled module by one with hooks."""
    path = getattr(made, "__file__", None)
    text = Path(path).read_text() if path else ""
    tree = ast.parse(text)
    function = _entry(tree)
    if function is None or not hasattr(made, ENTRY):
        reason = "inductor did not write a Python wrapper"
        observation.log.emit(Fallback("values of whole graphs only", reason))
        observation.notes.append(f"a graph was compared only as a whole: {reason}")
        return
    module = copy_module(lowering.module)
    plain = made.call
    statements = instrument(function)
    kernels = _InductorKernels(_sources(tree), str(path))
    graph = ObservedGraph(
        observation,
        observation.next_graph(),
        compile_direction() or "inference",
        before,
        ReferenceGraph(module),
        written_at_once(_nodes(lowering, module), lowering.mutated_buffers, kernels, statements),
        kernels,
        statements,
    )
    program = ObservedProgram(graph, plain)
    names = dict(zip((BEFORE, AFTER, RETURN), program.hooks(), strict=True))
    namespace = {**vars(made), **names}
    exec(compile(_only_entry(tree), str(path), "exec"), namespace)
    program.hooked = namespace[ENTRY]
    made.call = program


def _entry(tree: ast.Module) -> ast.FunctionDef | None:
    found = (n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and n.name == ENTRY)
    return next(found, None)


def _only_entry(tree: ast.Module) -> ast.Module:
    """Return the statements of a module that define its entry, without its kernels."""
    wanted: list[ast.stmt] = []
    for node in tree.body:
        entry = isinstance(node, ast.ClassDef | ast.FunctionDef) and (
            node.name == ENTRY or any(n is not node for n in ast.walk(node) if _is_entry(n))
        )
        names = node.targets if isinstance(node, ast.Assign) else []
        if entry or any(isinstance(n, ast.Name) and n.id in ("runner", ENTRY) for n in names):
            wanted.append(node)
    return ast.Module(wanted, [])


def _is_entry(node: ast.AST) -> bool:
    return isinstance(node, ast.FunctionDef) and node.name == ENTRY


def _nodes(lowering: Any, module: fx.GraphModule) -> dict[str, str]:
    """Return the FX node whose value each buffer holds, where inductor knows it.

    A node that updates memory is left out: its buffer held another value before.
    """
    nodes = {node.name: node for node in module.graph.nodes}
    found: dict[str, str] = {}
    for name, buffer in lowering.name_to_buffer.items():
        origin = buffer.get_origin_node() if hasattr(buffer, "get_origin_node") else None
        node = nodes.get(getattr(origin, "name", ""))
        if node is not None and not updates_memory(node):
            found[name] = node.name
    return found


def written_at_once(
    nodes: Mapping[str, str],
    updated: Collection[str],
    kernels: Kernels,
    statements: Sequence[Statement],
) -> dict[str, str]:
    """Return the nodes of buffers without those of updated buffers that several steps write.

    Inductor computes a scatter in two buffers: it copies or fills the first, which it takes for the
    value of the node, and then updates its memory. If one kernel does both, the first holds the
    node's value. If two do, it holds it only after the second.
    """
    writers: Counter[str] = Counter()
    for statement in statements:
        if statement.effect is Effect.COMPUTES:
            access = kernels.access(statement)
            writers.update(statement.names if access is None else access.writes)
    return {n: node for n, node in nodes.items() if n not in updated or writers[n] <= 1}


def _sources(tree: ast.Module) -> dict[str, str]:
    """Return the text of each kernel of a module."""
    found: dict[str, str] = {}
    for name, call in built_kernels(tree):
        texts = [
            a.value
            for a in (*call.args, *(k.value for k in call.keywords))
            if isinstance(a, ast.Constant) and isinstance(a.value, str)
        ]
        if texts:
            found[name] = max(texts, key=len)
    return found


@dataclass(frozen=True)
class _InductorKernels:
    """The kernels of a module, with the roles of their parameters."""

    sources: Mapping[str, str]
    path: str
    roles: dict[str, list[str]] = field(default_factory=dict)

    def name(self, statement: Statement) -> str:
        """Return the name of the kernel that a statement calls."""
        name = statement.callee.removesuffix(".run")
        return name if name in self.sources else ""

    def source(self, name: str) -> tuple[str, str]:
        """Return the text of a kernel and its file."""
        return self.sources[name], self.path

    def access(self, statement: Statement) -> Access | None:
        """Return what a call reads and writes, from the names and types of the parameters."""
        name = self.name(statement)
        if not name:
            return None
        if name not in self.roles:
            self.roles[name] = parameter_roles(self.sources[name])
        roles = self.roles[name]
        pointers = [names for names in statement.arguments if names]
        if not roles or "?" in roles or len(pointers) < len([r for r in roles if r]):
            return None
        found: dict[str, list[str]] = {"r": [], "w": [], "f": []}
        for role, names in zip(roles, statement.arguments, strict=False):
            for letter in role:
                found[letter] += names
        return Access(*(tuple(dict.fromkeys(names)) for names in found.values()))


def parameter_roles(text: str) -> list[str]:
    """Return for each parameter of a kernel r, w, rw, empty for a number, or ? if unknown.

    The role rwf is that of memory in which the kernel leaves the value of its former variable.
    """
    for pattern, role in ((CPP_PARAMETERS, _cpp_role), (TRITON_PARAMETERS, _triton_role)):
        if found := pattern.search(text):
            declarations = [part.strip() for part in found[1].split(",") if part.strip()]
            body = text[found.end() :]
            return [_if_written(role(one), one, body) for one in declarations]
    return []


def _if_written(role: str, declaration: str, body: str) -> str:
    """Return the role of a parameter that a kernel may update in place, by what it stores there.

    Inductor plans such an update before it finds that the new value is needed only in the kernel.
    Then the kernel stores nothing, or only the value of the former variable of the memory, which it
    computes too and knows by another name.
    """
    found = IN_OUT.search(declaration)
    if role != "rw" or found is None:
        return role
    alias = re.compile(rf"(?:auto )?\b(\w+) = {found[0]};?[ \t]*$", re.MULTILINE)
    rest, others = alias.sub("", body), alias.findall(body)
    if _is_stored(found[0], rest):
        return role
    return "rwf" if any(_is_stored(name, rest) for name in others) else "r"


def _is_stored(name: str, body: str) -> bool:
    """Return whether a kernel uses a parameter other than to load from it."""
    uses = len(re.findall(rf"\b{name}\b", body))
    loads = rf"(?:loadu\(|tl\.load\(|= ){name}\b(?! *;)|\({name}\["
    return uses > len(re.findall(loads, body))


def _cpp_role(declaration: str) -> str:
    if "*" not in declaration:
        return ""
    if declaration.startswith("const"):
        return "r"
    return "rw" if "in_out" in declaration else "w"


def _triton_role(declaration: str) -> str:
    name = declaration.partition(":")[0].strip()
    for prefix, role in (("in_out_ptr", "rw"), ("in_ptr", "r"), ("out_ptr", "w"), ("arg_", "r")):
        if name.startswith(prefix):
            return role
    known = ("numel", "BLOCK", "num_", "ks", "seed", "load_seed")
    return "" if any(part in name for part in known) else "?"
