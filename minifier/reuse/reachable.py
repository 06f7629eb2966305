"""Describes what a call can read or write: arguments, closures, globals, and all they refer to.

Objects are inspected without running their code. Properties are not evaluated; only instance
dictionaries, slots and containers are read. The result therefore holds the state that Python keeps,
but not the state that C code keeps behind an object (an iterator's position, a file).
"""

from __future__ import annotations

import builtins
import contextvars
import enum
import functools
import sys
import sysconfig
import types
import weakref
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

MOST_OBJECTS = 20_000
"""The limit on inspected objects. What lies behind them is not inspected."""
SCALARS = (
    bool, int, float, complex, str, bytes, range, slice,
    torch.dtype, torch.device, torch.layout, torch.memory_format,
)  # fmt: skip
NAMED = ("type", "function", *(kind.__name__ for kind in (type(len), type(str.lower))))
"""Kinds of objects that are identified by name."""
UNINITIALIZED = (torch.nn.UninitializedParameter, torch.nn.UninitializedBuffer)
OPAQUE = ("torch._", "torch.fx", "torch.utils", "torch.jit", "tcdebug", "logging", "threading")
"""Prefixes of the modules whose classes' instances are not inspected."""
OURS = ("_dynamo", "_torchdynamo", "_compiled_call_impl", "__weakref__", "__dict__", "__doc__")
"""Prefixes of attributes that torch.compile keeps on a program's objects and that say nothing."""
STANDARD = (sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"), "<")
PACKAGES = ("site-packages", "dist-packages")
DESCRIBED = (
    types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType,
    types.MethodWrapperType, types.GetSetDescriptorType, types.MemberDescriptorType,
    types.ClassMethodDescriptorType, types.ModuleType,
)  # fmt: skip


@dataclass(frozen=True)
class ObjectNode:
    """An object: its type, its own value, and its children by label."""

    kind: str
    value: Any = None
    children: tuple[tuple[str, int], ...] = ()


@dataclass
class Reachable:
    """Everything that the roots refer to. `nodes[0]` is the parent of all roots."""

    nodes: list[ObjectNode]
    tensors: dict[int, torch.Tensor] = field(default_factory=dict)
    """The place of each tensor's node -> the tensor."""

    def paths(self) -> dict[str, str]:
        """Return a text for each path. An object that was seen before refers to its first path."""
        found: dict[str, str] = {}
        first: dict[int, str] = {}
        stack = [(0, "")]
        while stack:
            place, path = stack.pop()
            node = self.nodes[place]
            known = first.setdefault(place, path)
            text = node.kind if node.value is None else f"{node.kind} {node.value}"
            met = known != path
            found[path] = f"the same as {known}" if met and node.kind not in NAMED else text
            if met:
                continue
            stack += [(child, path + label) for label, child in reversed(node.children)]
        return found


def reachable(roots: Mapping[str, Any]) -> Reachable:
    """Describe what the roots refer to. Nothing is copied; tensors are kept as they are."""
    walk = _Walk()
    walk.nodes.append(ObjectNode("roots"))
    children = tuple((name, walk.visit(value)) for name, value in roots.items())
    walk.nodes[0] = ObjectNode("roots", None, children)
    while walk.waiting:
        place, value = walk.waiting.popleft()
        walk.nodes[place] = walk.described(value)
    return Reachable(walk.nodes, walk.tensors)


@dataclass
class _Walk:
    """A breadth-first walk through objects."""

    nodes: list[ObjectNode] = field(default_factory=list)
    tensors: dict[int, torch.Tensor] = field(default_factory=dict)
    places: dict[int, int] = field(default_factory=dict)
    alive: list[Any] = field(default_factory=list)
    """References to all visited objects, so that no id is reused."""
    waiting: deque[tuple[int, Any]] = field(default_factory=deque)

    def visit(self, value: Any) -> int:
        """Return the place of an object's node. The node is filled in later."""
        if value is None or isinstance(value, SCALARS):
            self.nodes.append(ObjectNode(type(value).__name__, repr(value)))
            return len(self.nodes) - 1
        if id(value) in self.places:
            return self.places[id(value)]
        place = self.places[id(value)] = len(self.nodes)
        self.alive.append(value)
        self.nodes.append(ObjectNode(type(value).__qualname__))
        if len(self.nodes) < MOST_OBJECTS:
            self.waiting.append((place, value))
        return place

    def described(self, value: Any) -> ObjectNode:
        """Return the node of an object."""
        if isinstance(value, torch.Tensor):
            if not isinstance(value, UNINITIALIZED):
                self.tensors[self.places[id(value)]] = value
            grad = _gradient(value)
            extra = [(".grad", grad)] if grad is not None else []
            return self._node(value, _tensor(value), extra + _attributes(value))
        if isinstance(value, DESCRIBED):
            return self._node(value, _name(value), [])
        numpy = sys.modules.get("numpy")  # neither torch nor the program may have imported it
        if numpy is not None and isinstance(value, numpy.generic):
            return ObjectNode(type(value).__name__, repr(value.item()))
        if numpy is not None and isinstance(value, numpy.ndarray):
            if value.dtype.kind in "biufc":
                self.tensors[self.places[id(value)]] = torch.as_tensor(value)
            return ObjectNode("ndarray", f"{value.dtype}{list(value.shape)}")
        if isinstance(value, enum.Enum):
            return ObjectNode(type(value).__qualname__, value.name)
        if isinstance(value, type):
            return self._node(value, _name(value), _of_class(value))
        own = _value(value)
        return self._node(value, own, [*_items(value), *_attributes(value)])

    def _node(self, value: Any, own: Any, items: Iterable[tuple[str, Any]]) -> ObjectNode:
        children = tuple((label, self.visit(item)) for label, item in items)
        return ObjectNode(type(value).__qualname__, own, children)


def _tensor(value: torch.Tensor) -> str:
    """Return what Dynamo guards about a tensor, as text."""
    if isinstance(value, UNINITIALIZED):
        return "not initialized"
    grad = ", requires_grad" if value.requires_grad else ""
    return f"{value.dtype}{list(value.shape)} on {value.device}{grad}"


def _name(value: Any) -> str:
    """Return the qualified name of a function, descriptor or class."""
    name = getattr(value, "__qualname__", None) or getattr(value, "__name__", "?")
    module = getattr(value, "__module__", None)
    return f"{module}.{name}" if isinstance(module, str) else str(name)


def _value(value: Any) -> str | None:
    """Return what the items of a container do not show, or the name of a function."""
    if isinstance(value, dict):
        return f"of keys {', '.join(map(_key, value))}" if value else "empty"
    if isinstance(value, list | tuple | deque | set | frozenset):
        return f"of {len(value)}"
    if isinstance(value, types.FunctionType):
        return f"{_name(value)} at line {value.__code__.co_firstlineno}"
    return None


def _items(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the items of a container or the parts of a callable."""
    if isinstance(value, dict | types.MappingProxyType):
        yield from ((f"[{_key(k)}]", v) for k, v in value.items())
    elif isinstance(value, list | tuple | deque):
        yield from ((f"[{k}]", v) for k, v in enumerate(value))
    elif isinstance(value, set | frozenset):
        yield from ((f"{{{k!r}}}", k) for k in sorted(value, key=repr) if isinstance(k, SCALARS))
    elif isinstance(value, types.FunctionType):
        yield from _of_function(value)
    elif isinstance(value, types.MethodType):
        yield from ((".__self__", value.__self__), (".__func__", value.__func__))
    elif isinstance(value, functools.partial):
        yield from ((".func", value.func), (".args", value.args), (".keywords", value.keywords))
    elif isinstance(value, property):
        yield (".fget", value.fget)
    elif isinstance(value, staticmethod | classmethod):
        yield (".__func__", value.__func__)
    elif isinstance(value, weakref.ref):
        yield ("()", value())
    elif isinstance(value, contextvars.ContextVar):
        yield (".get()", value.get(None))


def _of_function(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    """Yield closure, defaults and, for a function of the program itself, the globals it names."""
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield f".{name}", cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    if function.__defaults__:
        yield ".__defaults__", function.__defaults__
    if function.__kwdefaults__:
        yield ".__kwdefaults__", function.__kwdefaults__
    if _installed(function.__code__.co_filename):
        return
    for code in _codes(function.__code__):
        for name in code.co_names:
            known = function.__globals__.get(name, builtins)
            if known is builtins:
                continue
            if isinstance(known, types.ModuleType):
                yield from _of_module(known, name, code)
            else:
                yield f" global {name}", known


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    """Yield code and the code of the functions and comprehensions inside it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant)


def _of_module(
    module: types.ModuleType, name: str, code: types.CodeType
) -> Iterator[tuple[str, Any]]:
    """Yield the attributes of a module of the program itself that the code may read."""
    file = getattr(module, "__file__", None)
    if file is None or _installed(file):
        return
    for attribute in code.co_names:
        if attribute in vars(module):
            yield f" global {name}.{attribute}", vars(module)[attribute]


def _attributes(value: Any) -> list[tuple[str, Any]]:
    """Return the instance dictionary and the slots of an object."""
    if type(value).__module__.startswith(OPAQUE) and not isinstance(value, torch.nn.Module):
        return []
    found = dict(getattr(value, "__dict__", None) or {}) if not isinstance(value, type) else {}
    for owner in type(value).__mro__:
        for name, slot in vars(owner).items():
            if isinstance(slot, types.MemberDescriptorType) and not name.startswith("__"):
                try:
                    found[name] = slot.__get__(value)
                except AttributeError:  # not assigned yet
                    continue
    if _program_class(type(value)):
        found["__class__"] = type(value)
    return [(f".{name}", v) for name, v in found.items() if not str(name).startswith(OURS)]


def _of_class(owner: type) -> list[tuple[str, Any]]:
    """Return the attributes and bases of a class that the program itself defines."""
    if not _program_class(owner):
        return []
    named = [(f".{k}", v) for k, v in vars(owner).items() if not k.startswith(OURS)]
    bases = [(f".__bases__[{k}]", base) for k, base in enumerate(owner.__bases__)]
    return [(name, v) for name, v in named if not _slot(v)] + bases


def _slot(value: Any) -> bool:
    return isinstance(value, types.MemberDescriptorType | types.GetSetDescriptorType)


def _program_class(owner: type) -> bool:
    """Return whether the program itself defines a class."""
    functions = (v for v in vars(owner).values() if isinstance(v, types.FunctionType))
    function = next(functions, None)
    if function is not None:
        return not _installed(function.__code__.co_filename)
    return "<locals>" in owner.__qualname__ or _of_program(sys.modules.get(owner.__module__))


def _of_program(module: types.ModuleType | None) -> bool:
    """Return whether a module is neither built in nor installed."""
    file = getattr(module, "__file__", None)
    if file is not None:
        return not _installed(file)
    return module is not None and module.__spec__ is None


@functools.cache
def _installed(file: str) -> bool:
    """Return whether a file belongs to Python or to an installed package."""
    return file.startswith(STANDARD) or any(name in Path(file).parts for name in PACKAGES)


def _key(key: Any) -> str:
    return repr(key) if isinstance(key, SCALARS) else type(key).__qualname__


def _gradient(value: torch.Tensor) -> torch.Tensor | None:
    """The gradient of a leaf; None for a view whose history autograd refuses to read."""
    try:
        return value.grad if value.is_leaf and value.requires_grad else None
    except RuntimeError:  # a view of no_grad mode whose base was written to with gradients
        return None
