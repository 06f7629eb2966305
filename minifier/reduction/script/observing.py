"""Records the values of a script's expressions in a run.

The script runs with each expression wrapped in a call that records its value and returns it. An
expression that has the same literal value wherever and whenever it is evaluated can be replaced by
that literal, for example `args.hidden` by 64. One that always is the same function or class of the
script can be replaced by its name, for example `MODELS[args.model]` by `Transformer`.
"""

from __future__ import annotations

import ast
import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import gettempdir
from types import FunctionType
from typing import Any

from tcdebug.minifier.reduction.script.dropping.compiled import arguments_given
from tcdebug.minifier.reduction.script.rewriting import Rewrite, expressions, rewritten

OBSERVER = "__tcdebug_observed__"
"""The name of the function that wraps the expressions."""
LONGEST = 60
"""The limit on the text of a literal, in characters."""
DIGITS = 10
"""A number with a longer text is a result, such as a loss or an address, which may change."""
WRAPPED = "__wrapped__"
"""The attribute of functions that call another one of the same name, such as compiled ones."""
NOT_WRAPPED = (ast.Constant, ast.Starred, ast.Slice, ast.Yield, ast.YieldFrom, ast.Await)
"""Expressions whose value is known, or that cannot be an argument."""


def instrumented(text: str, path: Path) -> str | None:
    """Return a script that writes the values of its expressions to a file; None if none can."""
    tree = ast.parse(text)
    given, wrapped = set(arguments_given(tree)), []
    for node in expressions(tree):
        if isinstance(node, NOT_WRAPPED) or _has_slices(node):
            continue
        shown = ast.unparse(node)
        call = _observed(shown, node)
        if node in given:
            call = _observed(argument_key(shown), call)
        wrapped.append(Rewrite.of(node, call))
    body = rewritten(tree, wrapped)
    if body is None:
        return None
    tree = ast.parse(body)
    first = [s for s in tree.body if isinstance(s, ast.ImportFrom) and s.module == "__future__"]
    rest = [s for s in tree.body if s not in first]
    begin = ast.parse(BEGIN.format(name=OBSERVER, module=__name__, path=str(path))).body
    end = ast.parse(f"{OBSERVER}.write()").body
    tree.body = [*first, *begin, ast.Try(rest, [], [], end)]
    return ast.unparse(ast.fix_missing_locations(tree))


def argument_key(text: str) -> str:
    """Return the key under which the shape of a tensor that compiled code is given is recorded."""
    return f"argument {text}"


def _observed(text: str, node: ast.expr) -> ast.Call:
    return ast.Call(ast.Name(OBSERVER, ast.Load()), [ast.Constant(text), node], [])


def _has_slices(node: ast.expr) -> bool:
    """Return whether an expression may stand only between the brackets of a subscript."""
    return isinstance(node, ast.Tuple) and any(isinstance(e, ast.Slice) for e in node.elts)


BEGIN = """
from {module} import ObservedValues as {name}
{name} = {name}({path!r}, globals())
"""
"""The first lines of an observed script."""


class ObservedValues:
    """The values of expressions by their text. They are written to a file at exit, as JSON."""

    def __init__(self, path: str, names: Mapping[str, object]) -> None:
        self._seen: dict[str, str | None] = {}
        self._path = Path(path)
        self._names = names

    def __call__(self, text: str, value: Any) -> Any:
        """Record the value of an expression, and return it."""
        if self._seen.get(text, "") is not None:
            if not text.startswith(argument_key("")):
                found = literal(value, self._definition)
            else:
                found = _constant_tensor(value) if "torch" in self._names else None
            self._seen[text] = found if self._seen.get(text, found) == found else None
        return value

    def _definition(self, value: object) -> str | None:
        """Return the name under which the script defines a function or a class, if it does.

        A decorator that returns nothing may have left None there.
        """
        if not isinstance(value, type | FunctionType):
            return None
        name, known = value.__qualname__, self._names.get(value.__qualname__)
        own = getattr(value, "__module__", None) == self._names.get("__name__")
        if not own or not name.isidentifier():
            return None
        return name if known is value or (known is None and not hasattr(value, WRAPPED)) else None

    def write(self) -> None:
        """Write the texts of expressions that always had the same value, with the value's text."""
        found = {text: value for text, value in self._seen.items() if value not in (None, text)}
        self._path.write_text(json.dumps(found))


def _constant_tensor(value: Any) -> str | None:
    """Return a tensor of ones with the shape and type of a plain tensor, as Python text."""
    if type(value).__module__ != "torch" or type(value).__name__ != "Tensor":
        return None
    if value.requires_grad or value.device.type != "cpu" or not value.is_contiguous():
        return None
    sizes = ", ".join(map(str, value.shape)) or "()"
    dtype = "" if str(value.dtype) == "torch.float32" else f", dtype={value.dtype}"
    return f"torch.ones({sizes}{dtype})"


def literal(value: object, named: Callable[[object], str | None]) -> str | None:
    """Return a plain value as Python text; None for any other value, or if the text is long.

    `named` gives the name of a function or a class that the script defines.
    """
    text = _literal(value, named)
    return text if text is not None and len(text) <= LONGEST else None


def _literal(value: object, named: Callable[[object], str | None]) -> str | None:
    if type(value) is str and gettempdir() in value:
        return None  # such a file is there in this run only
    if value is None or isinstance(value, bool) or type(value) is str:
        return repr(value)
    if isinstance(value, int | float) and type(value) in (int, float):
        return repr(value) if len(repr(value)) <= DIGITS and math.isfinite(value) else None
    if type(value) is list or type(value) is tuple:
        parts = [literal(part, named) for part in value]
        if any(part is None for part in parts):
            return None
        inner = ", ".join(str(part) for part in parts)
        comma = "," if type(value) is tuple and len(parts) == 1 else ""
        return f"[{inner}]" if type(value) is list else f"({inner}{comma})"
    if type(value).__module__ == "torch" and type(value).__name__ == "dtype":
        return repr(value)
    return named(value)
