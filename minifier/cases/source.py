"""Writes a case as Python text: the class `Graph`, which is replayed and shown in a repro script.

Nested graphs, such as the body of a checkpoint or the branches of a cond, become separate classes
before it. Operators that only Dynamo can emit, those of checkpoints and autograd.Functions, are
turned back into the calls that Dynamo captured. Otherwise the text could not be captured again.
"""

from __future__ import annotations

import ast
import keyword
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
import torch.utils.checkpoint
from torch import fx

from tcdebug.minifier.cases.case import Case, attributes
from tcdebug.minifier.cases.operators import scan
from tcdebug.minifier.cases.operators.attention import is_captured_again, reading_its_values
from tcdebug.minifier.cases.operators.autocast import in_blocks
from tcdebug.minifier.cases.operators.data import as_attribute
from tcdebug.minifier.cases.operators.definitions import Definitions
from tcdebug.minifier.cases.operators.distributed_calls import is_placed, placed_line
from tcdebug.minifier.cases.operators.graph_copies import copy_graph
from tcdebug.minifier.cases.operators.hooks import hooks_restored
from tcdebug.minifier.cases.operators.numpy_calls import recorded_call
from tcdebug.minifier.cases.operators.python_text import import_line, run_text, torch_imports
from tcdebug.minifier.cases.operators.triton_launches import (
    KernelLaunch,
    is_launch,
    launch_line,
)

CLEANUP = re.compile(r";  [\w. =]+ = None$")
PRIVATE = re.compile(r"torch\._C\._nn\.(\w+)")
WRITTEN = "mutated_arg_indices"
"""The argument with which Dynamo says which inputs a loop writes to. It accepts none itself."""
RESERVED = (
    "torch", "operator", "data", "stored", "wide", "memory", "inf", "nan", "device", "Graph"
)  # fmt: skip
"""Names that a repro script itself uses."""
NOISE = ("self", "modules", "parameters", "buffers", "L", "G", "l", "g", "fn", "closure")


@dataclass(frozen=True)
class Source:
    """The text of the classes, the graph's own class last, and what it needs to run.

    `imports` are the lines that it needs besides `import torch`. `names` maps its names to objects.
    `constants` are the tensors that `stored()` must provide. `foreign` are names that only the
    user's script can provide: its own functions and objects.
    """

    text: str
    imports: tuple[str, ...]
    names: Mapping[str, Any]
    constants: Mapping[str, torch.Tensor]
    foreign: tuple[str, ...]
    definitions: str = ""
    """The beginning of the text, which defines the Triton kernels and calls of NumPy it uses."""

    @property
    def classes(self) -> str:
        """The text without definitions."""
        return self.text.removeprefix(self.definitions)


def readable_names(case: Case) -> Case:
    """Shorten the names of inputs: L_self_modules_fc1_parameters_weight_ becomes fc1_weight."""
    taken = set(RESERVED)
    graph, copies = copy_graph(case.graph)
    renamed: dict[str, str] = {}
    for node, copy in copies.items():
        if node.op != "placeholder":
            continue
        name = _short(str(node.target), taken)
        renamed[str(node.target)] = name
        copy.target = name
        copy.name = name
    inputs = tuple(replace(i, name=renamed[i.name]) for i in case.inputs)
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
    """Write the graph of a module as a class with a `forward` method, after the classes it uses."""
    writer = _Writer()
    writer.add(module, name, "self")
    definitions = f"{writer.definitions.text}\n" if writer.definitions.text else ""
    text = definitions + "\n\n".join(writer.classes)
    used = {n.id for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Name)} - {"torch"}
    names = {n: v for n, v in writer.names.items() if n in used}
    imports = [import_line(n, v) for n, v in sorted(names.items())] + torch_imports(text)
    imports += sorted(writer.definitions.imports)
    foreign = [n for n, v in names.items() if not import_line(n, v)] + writer.objects
    used_imports = tuple(i for i in imports if i)
    return Source(text, used_imports, names, writer.constants, tuple(foreign), definitions)


@dataclass
class _Writer:
    """Classes in the order in which they can be defined, and the objects they refer to."""

    classes: list[str] = field(default_factory=list)
    names: dict[str, Any] = field(default_factory=dict)
    constants: dict[str, torch.Tensor] = field(default_factory=dict)
    objects: list[str] = field(default_factory=list)
    definitions: Definitions = field(default_factory=Definitions)

    def add(self, module: fx.GraphModule, name: str, path: str, *, region: bool = False) -> None:
        """Write the class of a graph. `path` is its attribute path from the outermost graph.

        `region` marks a graph that Dynamo compiles once for all calls.
        """
        graph = _writable(module)
        regions = _regions_restored(graph)
        # Dynamo accepts as a step only a module that fx has traced
        traced = {str(n.args[0].target) for n in graph.nodes if n.target is scan.SCAN}
        functions = _functions_restored(module, graph)
        setting: list[str] = []
        for target, value in attributes(module, graph).items():
            inner, flat = f"{path}.{target}", _flat(target)
            if target in functions:
                self._add_function(functions[target], _class_name(inner))
                setting.append(f"self.{flat} = {_class_name(inner)}")
            elif isinstance(value, fx.GraphModule):
                self.add(value, _class_name(inner), inner, region=target in regions)
                made = f"{_class_name(inner)}()"
                made = f"torch.fx.symbolic_trace({made})" if target in traced else made
                setting.append(f"self.{flat} = {made}")
            elif isinstance(value, torch.Tensor):
                self.constants[inner] = value
                kept = f"stored()[{inner!r}]"
                parameter = isinstance(value, torch.nn.Parameter)
                made = f"torch.nn.Parameter({kept}, {value.requires_grad})" if parameter else kept
                setting.append(
                    f"self.{flat} = {made}" if parameter
                    else f"self.register_buffer({flat!r}, {made})"
                )  # fmt: skip
            else:
                self.objects.append(inner)
        for node in graph.nodes:
            if node.op in ("get_attr", "call_module"):
                node.target = _flat(node.target)
        lines = [f"class {name}(torch.nn.Module):"]
        if setting:
            lines += ["    def __init__(self):", "        super().__init__()"]
            lines += [f"        {line}" for line in setting] + [""]
        lines += ["    @torch.compiler.nested_compile_region"] * region
        lines += [f"    {line}" for line in self._method(graph)]
        self.classes.append("\n".join(lines) + "\n")

    def _add_function(self, function: _Function, name: str) -> None:
        """Write an autograd.Function from the two graphs that Dynamo made of its methods."""
        lines = [f"class {name}(torch.autograd.Function):"]
        for body, method in ((function.forward, "outputs"), (function.backward, "gradients")):
            text = self._method(_writable(body))
            text[0] = text[0].replace("def forward(self, ", f"def {method}(")
            text[0] = text[0].replace("def forward(self)", f"def {method}()")
            lines += ["    @staticmethod", *(f"    {line}" for line in text), ""]
        saved = [
            f"tensors[{function.tensors.index(k)}]" if k in function.tensors
            else f"ctx.others[{k}]"
            for k in range(function.saved)
        ]  # fmt: skip
        tensors = ", ".join(f"saved[{k}]" for k in function.tensors)
        lines += ["    @staticmethod", "    def forward(ctx, *args):"]
        lines += [f"        results, saved = {name}.outputs(*args)"]
        lines += [f"        ctx.save_for_backward({tensors})"] if tensors else []
        if len(function.tensors) < function.saved:
            others = [k for k in range(function.saved) if k not in function.tensors]
            table = ", ".join(f"{k}: saved[{k}]" for k in others)
            lines.append(f"        ctx.others = {{{table}}}")
        for marked, indices in function.marks.items():
            results = ", ".join(f"results[{k}]" for k in indices)
            lines += [f"        ctx.{marked}({results})"] if results else []
        lines += ["        return results", ""]
        lines += ["    @staticmethod", "    def backward(ctx, *grads):"]
        # a checkpoint provides saved tensors only once
        lines += ["        tensors = ctx.saved_tensors"] * bool(tensors)
        lines += [f"        return {name}.gradients({', '.join(['*grads', *saved])})"]
        self.classes.append("\n".join(lines) + "\n")

    def _method(self, graph: fx.Graph) -> list[str]:
        """Return the lines of `forward`, and record the names they use."""
        code = graph.python_code("self")
        lines = [CLEANUP.sub("", line) for line in code.src.splitlines()]
        for node in filter(is_captured_again, graph.nodes):
            lines = _line_changed(lines, node, reading_its_values)
        for node in filter(scan.reads_numbers, graph.nodes):
            lines = _line_changed(lines, node, partial(scan.reading_its_numbers, node=node))
            self.names.update(scan.NAMES)
        for node in filter(is_placed, graph.nodes):
            lines = _line_changed(lines, node, partial(placed_line, node=node))
        variables = {node.name for node in graph.nodes if not is_launch(node)}
        for node in graph.nodes:
            if isinstance(node.target, KernelLaunch):
                called = self.definitions.add(node.target, variables)
                lines = _line_changed(lines, node, partial(launch_line, node=node, name=called))
        lines = [
            as_attribute(PRIVATE.sub(_public, line.replace(" -> tuple", ""))) for line in lines
        ]
        start = next(k for k, line in enumerate(lines) if line.startswith("def forward"))
        body = [line for line in lines[start:] if line.strip() and not _alias(line)]
        body = in_blocks(body, graph)
        for name, value in code.globals.items():
            # classes mangle names with two leading underscores
            known = name.lstrip("_") if name.startswith("__") else name
            if recorded := recorded_call(value):
                known = self.definitions.define(known, recorded)
                self.names["operator"] = operator
            else:
                self.names[known] = value
            if known != name:
                body = [re.sub(rf"\b{name}\b", known, line) for line in body]
        return body


def _line_changed(lines: Sequence[str], node: fx.Node, change: Callable[[str], str]) -> list[str]:
    """Return the lines of a graph, with a change of the one that assigns to a node."""
    begins = f"{node.name} = "
    return [change(line) if line.strip().startswith(begins) else line for line in lines]


def _writable(module: fx.GraphModule) -> fx.Graph:
    """Copy a graph without annotations that its text does not need, and that Dynamo adds again."""
    graph, _ = copy_graph(module.graph)
    for node in graph.nodes:
        node.type = None
        node.kwargs = {k: v for k, v in node.kwargs.items() if k != WRITTEN}
    _checkpoints_restored(graph)
    hooks_restored(graph, attributes(module, graph))
    return graph


def _checkpoints_restored(graph: fx.Graph) -> bool:
    """Replace checkpoint operators by calls that draw the same numbers in backward again.

    The operator leaves that to the compiler. Return whether the graph has any.
    """
    found = False
    for node in graph.nodes:
        if node.target is torch.ops.higher_order.tag_activation_checkpoint:
            node.target = torch.utils.checkpoint.checkpoint
            found = True
    return found


def _regions_restored(graph: fx.Graph) -> set[str]:
    """Replace region operators by calls that eager can differentiate; return their attributes."""
    found: set[str] = set()
    for node in list(graph.nodes):
        if node.target is not torch.ops.higher_order.invoke_subgraph:
            continue
        body, _, *args = node.args
        found.add(str(body.target))
        with graph.inserting_before(node):
            call = graph.call_module(str(body.target), tuple(args))
        node.replace_all_uses_with(call)
        graph.erase_node(node)
        if not body.users:
            graph.erase_node(body)
    return found


def for_eager(module: fx.GraphModule) -> fx.GraphModule:
    """Return a captured graph that eager can run and differentiate.

    Its regions are plain calls, and its checkpoints are those of eager.
    """
    graph, _ = copy_graph(module.graph)
    restored = any([_regions_restored(graph), _checkpoints_restored(graph)])
    inner = {k: v for k, v in attributes(module, graph).items() if isinstance(v, fx.GraphModule)}
    runnable = {k: for_eager(v) for k, v in inner.items()}
    if not restored and all(runnable[k] is inner[k] for k in inner):
        return module
    made = fx.GraphModule(module, graph)
    for target, value in runnable.items():
        made.set_submodule(target, value)
    return made


@dataclass(frozen=True)
class _Function:
    """Dynamo's form of an autograd.Function.

    `forward` returns the results and `saved` values; `tensors` are the indices of those that were
    passed to save_for_backward. `backward` takes the gradients and the saved values. `marks` maps
    methods of ctx to the results that they are called with.
    """

    forward: fx.GraphModule
    backward: fx.GraphModule
    saved: int
    tensors: Sequence[int]
    marks: Mapping[str, Sequence[int]]


def _functions_restored(module: fx.GraphModule, graph: fx.Graph) -> dict[str, _Function]:
    """Replace autograd.Function operators by calls of `apply`; return functions by attribute."""
    found: dict[str, _Function] = {}
    known = attributes(module, graph)
    for node in list(graph.nodes):
        if node.target is not torch.ops.higher_order.autograd_function_apply:
            continue
        forward, backward, *args = node.args
        bodies = known[str(forward.target)], known[str(backward.target)]
        if any(attributes(b, b.graph) for b in bodies):
            continue
        _, saved = bodies[0].graph.output_node().args[0]
        found[str(forward.target)] = _Function(
            *bodies,
            saved=len(saved),
            tensors=list(node.kwargs.get("saved_for_backward_idx", [])),
            marks={
                "mark_dirty": node.kwargs.get("dirty_idx", []),
                "mark_non_differentiable": node.kwargs.get("non_differentiable_idx", []),
            },
        )
        with graph.inserting_before(node):
            call = graph.call_method("apply", (forward, *args))
        node.replace_all_uses_with(call)
        graph.erase_node(node)
        if not backward.users:
            graph.erase_node(backward)
    return found


def _class_name(path: str) -> str:
    """Return WrapBody0 for self.wrap_body_0."""
    words = re.split(r"[._]+", path.removeprefix("self."))
    return "".join(w[:1].upper() + w[1:] for w in words)


def _flat(target: str) -> str:
    return target.replace(".", "_")


def _public(match: re.Match[str]) -> str:
    """Return torch.nn.functional.gelu for torch._C._nn.gelu if they are the same function."""
    name = match.group(1)
    public = getattr(torch.nn.functional, name, None)
    same = public is not None and public is getattr(torch._C._nn, name, None)
    return f"torch.nn.functional.{name}" if same else match.group(0)


def _alias(line: str) -> bool:
    """Return whether a line is `x = x`, which renaming placeholders leaves behind."""
    left, equals, right = line.strip().partition(" = ")
    return bool(equals) and left == right


def load(case: Case, filename: str) -> torch.nn.Module:
    """Load the case as a module whose code Dynamo can capture. Its constants are copies."""
    source = module_source(case.module)

    def stored() -> dict[str, torch.Tensor]:
        return {name: value.detach().clone() for name, value in source.constants.items()}

    namespace: dict[str, Any] = {}
    exec("\n".join(source.imports), namespace)
    namespace |= {"torch": torch, **source.names, "stored": stored, "__name__": "graph"}
    run_text(source.text, filename, namespace)
    del namespace["__name__"]  # Triton needs it for kernels; Dynamo would import such a module
    module: torch.nn.Module = namespace["Graph"]()
    for name, value in case.attributes().items():
        if not isinstance(value, torch.Tensor | fx.GraphModule):
            setattr(module, _flat(name), value)
    return module
