"""Faults planted in Dynamo, AOTAutograd and a cache, and for each a program that shows it.

Each fault changes one unit: a guard that is not installed, a side effect that is not replayed, an
alias that is a copy, a key that leaves something out. The programs are small enough to be judged in
every test run.
"""

from __future__ import annotations

import dataclasses
import functools
import re
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec

from tcdebug.strategies.python.python_program import CallStep, PythonProgram, parsed_lines
from tcdebug.strategies.python.ways import COMPILE

FIRST = ("x = torch.arange(6.0).reshape(2, 3)", "y = torch.ones(3)", "n = 1")
THREE_ROWS = ("x = torch.arange(9.0).reshape(3, 3)", *FIRST[1:])
GUARDS = "torch._dynamo.guards:GuardBuilder"
SLOW = ("stale cache of graphs", "package returns another result", "cache reads another entry")
"""The faults whose programs take more than a few seconds."""
FLOAT = re.compile(r"\d+\.\d+f")
EFFECTS = "torch._dynamo.side_effects:SideEffects"


@dataclass(frozen=True)
class PlantedUnit:
    """A method or function that the fault replaces, the fault, and a program that shows it."""

    owner: str
    name: str
    fault: Callable[[Callable[..., Any]], Callable[..., Any]]
    program: PythonProgram
    backend: str = "eager"

    @property
    def place(self) -> Any:
        """The module or class that has the unit."""
        module, _, attribute = self.owner.partition(":")
        owner = import_module(module)
        return getattr(owner, attribute) if attribute else owner

    def plant(self) -> None:
        """Put the fault in force in this process."""
        setattr(self.place, self.name, self.fault(getattr(self.place, self.name)))


def nothing(original: Callable[..., Any]) -> Callable[..., Any]:
    """The unit does nothing. Its name stays, since torch looks guards up by the names of units."""

    @functools.wraps(original)
    def unit(*args: Any, **kwargs: Any) -> None:
        return None

    return unit


def in_main_thread(original: Callable[..., Any]) -> Callable[..., Any]:
    """The unit does nothing in other threads."""

    def unit(*args: Any, **kwargs: Any) -> Any:
        if threading.current_thread() is threading.main_thread():
            return original(*args, **kwargs)
        return None

    return unit


def never(original: Callable[..., Any]) -> Callable[..., Any]:
    """The unit answers no."""
    return lambda *args, **kwargs: False


def copying(original: Callable[..., Any]) -> Callable[..., Any]:
    """The unit returns a copy of its result."""
    return lambda *args, **kwargs: original(*args, **kwargs).clone()


def doubling(original: Callable[..., Any]) -> Callable[..., Any]:
    """The unit adds a number to what the second graph that it returns computes."""

    def partition(*args: Any, **kwargs: Any) -> Any:
        forward, backward = original(*args, **kwargs)
        (output,) = (n for n in backward.graph.nodes if n.op == "output")
        (results,) = output.args
        with backward.graph.inserting_before(output):
            output.args = ([r and backward.graph.call_function(_twice, (r,)) for r in results],)
        backward.recompile()
        return forward, backward

    return partition


def without_numbers(original: Callable[..., Any]) -> Callable[..., Any]:
    """The key leaves the numbers of a source out."""
    return lambda self, source: original(self, FLOAT.sub("", source))


def bytes_without_numbers(original: Callable[..., Any]) -> Callable[..., Any]:
    """The key of a graph leaves its numbers out."""
    return lambda self, value: re.sub(rb"\d+\.\d+", b"", original(self, value))


def reading_another(original: Callable[..., Any]) -> Callable[..., Any]:
    """An entry that is in the cache already is read as that of another source."""

    def build(source: str, toolchain: Any, cache_dir: Path, parts: Sequence[str] = ()) -> Any:
        if toolchain.key(source) in {path.stem for path in cache_dir.rglob("*.so")}:
            source = FLOAT.sub("7.5f", source)
        return original(source, toolchain, cache_dir, parts)

    return build


def first_twice(original: Callable[..., Any]) -> Callable[..., Any]:
    """The first result is also the second."""

    def call(*args: Any, **kwargs: Any) -> Any:
        results = original(*args, **kwargs)
        return [results[0], results[0]]

    return call


def adding(original: Callable[..., Any]) -> Callable[..., Any]:
    """The unit adds less than a millionth to the first result of the first graph."""

    def partition(*args: Any, **kwargs: Any) -> Any:
        forward, backward = original(*args, **kwargs)
        (output,) = (n for n in forward.graph.nodes if n.op == "output")
        first, *others = output.args[0]
        with forward.graph.inserting_before(output):
            output.args = ([forward.graph.call_function(_slightly_more, (first,)), *others],)
        forward.recompile()
        return forward, backward

    return partition


def _slightly_more(value: Any) -> Any:
    return value + 7e-7


def opposite(original: Callable[..., Any]) -> Callable[..., Any]:
    """A context is entered with the opposite of its value."""

    def resumed(entry: Any) -> Any:
        entered = original(entry)
        values = tuple(not value for value in entered.target_values or ())
        return dataclasses.replace(entered, target_values=values)

    return resumed


def _twice(value: Any) -> Any:
    return value * 2


def program(
    body: str, *changes: str, definitions: str = "", first: tuple[str, ...] = FIRST,
    mode: str = "", backward: bool = False, dynamic: bool | None = None, way: str = COMPILE,
) -> PythonProgram:  # fmt: skip
    """A program of these lines that is called once, changed, and called again."""
    steps = (CallStep(first, "", backward), CallStep(changes, mode, backward))
    return PythonProgram(parsed_lines(definitions), parsed_lines(body), steps, dynamic, way)


def in_thread(made: PythonProgram) -> PythonProgram:
    """The program, whose first call is made by a second thread."""
    first, *others = made.steps
    steps = (msgspec.structs.replace(first, thread=True), *others)
    return msgspec.structs.replace(made, steps=steps)


PLANTED = {
    "missing guard of a constant": PlantedUnit(
        GUARDS, "EQUALS_MATCH", nothing,
        program("return x * SCALE", "SCALE = 3", definitions="SCALE = 2"),
    ),
    "missing guard of a boolean": PlantedUnit(
        GUARDS, "BOOL_MATCH", nothing,
        program("return x * 2 if FLAG else x", "FLAG = False", definitions="FLAG = True"),
    ),
    "missing guard of a tensor": PlantedUnit(
        GUARDS, "TENSOR_MATCH", nothing,
        program("return x * x.shape[0]", "x = torch.ones(4, 3)"),
    ),
    "missing guard of a length": PlantedUnit(
        GUARDS, "SEQUENCE_LENGTH", nothing,
        program("return x * len(ITEMS)", "ITEMS.append(1)", definitions="ITEMS = [1]"),
    ),
    "missing guard of keys": PlantedUnit(
        GUARDS, "DICT_KEYS_MATCH", nothing,
        program("for key in TABLE:\n    x = x * 2 + len(key)\nreturn x",
                "TABLE['a'] = TABLE.pop('a')", definitions="TABLE = {'a': 1, 'bb': 2}"),
    ),
    "missing guard of a type": PlantedUnit(
        GUARDS, "TYPE_MATCH", nothing,
        program("return x * 2 if isinstance(BOX, Box) else x", "BOX = 1",
                definitions="class Box:\n    pass\nBOX = Box()"),
    ),
    "missing guard of a closure": PlantedUnit(
        GUARDS, "CLOSURE_MATCH", nothing,
        program("return act(x)", "def act(v): return v + 2",
                definitions="def act(v):\n    return v + 1"),
    ),
    "missing guard of aliases": PlantedUnit(
        GUARDS, "DUPLICATE_INPUT", nothing,
        program("x.add_(1)\nreturn x * y", "y = torch.ones(2, 3)",
                first=("x = torch.ones(2, 3)", "y = x", "n = 1")),
    ),
    "missing guard of global state": PlantedUnit(
        GUARDS, "GLOBAL_STATE", nothing,
        program("return x * 2 if torch.is_grad_enabled() else x", mode="torch.no_grad()"),
    ),
    "missing guard of an absent attribute": PlantedUnit(
        GUARDS, "NOT_PRESENT_IN_GENERIC_DICT", nothing,
        program("return x * BOX.level", "BOX.level = 2.0",
                definitions="class Box:\n    level = 1.0\nBOX = Box()"),
    ),
    "missing guard of a counter": PlantedUnit(
        GUARDS, "COUNT_ITERATOR_MATCH", nothing,
        program("return x * next(STEPS)",
                definitions="import itertools\nSTEPS = itertools.count(1)"),
    ),
    "missing guard of a range": PlantedUnit(
        GUARDS, "RANGE_ITERATOR_MATCH", nothing,
        program("return x * next(STEPS)", definitions="STEPS = iter(range(1, 9))"),
    ),
    "missing guard of a builtin": PlantedUnit(
        GUARDS, "BUILTIN_MATCH", nothing,
        program("return FUNCTIONS[0](x)", "FUNCTIONS[0] = torch.cos",
                definitions="FUNCTIONS = [torch.sin]"),
    ),
    "lost global": PlantedUnit(
        EFFECTS, "store_global", nothing,
        program("global LAST\nLAST = n\nreturn x * 2", definitions="LAST = 0"),
    ),
    "lost side effects": PlantedUnit(
        EFFECTS, "codegen_update_mutated", nothing,
        program("ITEMS.append(n)\nreturn x * 2", definitions="ITEMS = []"),
    ),
    "lost changes of containers": PlantedUnit(
        EFFECTS, "is_modified", never,
        program("TABLE['a'] = n\nreturn x * 2", definitions="TABLE = {}"),
    ),
    "lost hooks": PlantedUnit(
        EFFECTS, "codegen_hooks", nothing,
        program("y.register_hook(lambda g: g * 3)\nreturn y * 2", backward=True,
                first=(*FIRST, "y = torch.ones(3, requires_grad=True)")),
    ),
    "side effects of a thread are lost": PlantedUnit(
        EFFECTS, "codegen_update_mutated", in_main_thread,
        in_thread(program("ITEMS.append(n)\nreturn x * 2", definitions="ITEMS = []")),
    ),
    "ignored grad mode": PlantedUnit(
        "torch._dynamo.variables.ctx_manager:GradModeVariable", "_call_func", nothing,
        program("with torch.no_grad():\n    v = x * 2\nreturn [v, x * 3]",
                first=(*FIRST, "x = torch.ones(2, 3, requires_grad=True)")),
    ),
    "alias is a copy": PlantedUnit(
        "torch._functorch._aot_autograd.runtime_wrappers", "gen_alias_from_base", copying,
        program("return [x.view(x.shape), x * 2]"), "aot_eager",
    ),
    "wrong gradient": PlantedUnit(
        "torch._dynamo.backends.debugging", "min_cut_rematerialization_partition", doubling,
        program("return torch.sin(x)", backward=True,
                first=(*FIRST, "x = torch.ones(2, 3, requires_grad=True)")),
        "aot_eager_decomp_partition",
    ),
    "stale cache": PlantedUnit(
        "tcdebug.compiler.runtime.toolchain:Toolchain", "key", without_numbers,
        program("return x * 2.5", way="second process"), "tcdebug",
    ),
    "stale cache of graphs": PlantedUnit(
        "torch._inductor.codecache:FxGraphCachePickler", "dumps", bytes_without_numbers,
        program("return x * 2.5", way="second process"), "inductor",
    ),
    "package returns another result": PlantedUnit(
        "torch._inductor.package.package:AOTICompiledModel", "__call__", first_twice,
        program("return [x * 2.5, x.sum()]", way="AOTInductor"), "inductor",
    ),
    "size of a batch is not guarded": PlantedUnit(
        GUARDS, "TENSOR_MATCH", nothing,
        program("return [x.reshape(x.shape[0], 3) * 2]", first=THREE_ROWS, way="batch split"),
    ),
    "error less than rounding": PlantedUnit(
        "torch._dynamo.backends.debugging", "min_cut_rematerialization_partition", adding,
        program("return [torch.relu(x) * 2]", way="scaled",
                first=(*FIRST, "x = torch.ones(2, 3, requires_grad=True)")),
        "aot_eager_decomp_partition",
    ),
    "context is left at a graph break": PlantedUnit(
        "torch._dynamo.symbolic_convert:BlockStackEntry", "resume_fn", opposite,
        program("with torch.no_grad():\n    torch._dynamo.graph_break()\n    v = x * 2\n"
                "return [v, x * 3]", way="graph breaks",
                first=(*FIRST, "x = torch.ones(2, 3, requires_grad=True)")),
    ),
    "cache reads another entry": PlantedUnit(
        "tcdebug.compiler.devices.cpu", "build", reading_another,
        program("return x * 2.5", way="second process"), "tcdebug",
    ),
}  # fmt: skip
