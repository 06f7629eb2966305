"""The text of a user's script: a version, as a candidate of a reduction, and what it sets first."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import blake2b

from tcdebug.minifier.cases.environment import is_setting

ENVIRONMENTS = ("os.environ", "environ")
"""How scripts name the environment."""
HARMLESS = sys.stdlib_module_names | {"torch", "numpy"}
"""Packages whose import does not import inductor."""
LAZY = ("TORCHINDUCTOR_", "TORCHDYNAMO_", "TORCH_COMPILE_")
"""How the names of variables begin that torch reads only when something is compiled."""
READS = re.compile(r"\b_(?:inductor|dynamo|functorch)\b")
"""Modules of torch that may read the variables of inductor when they are imported."""


@dataclass(frozen=True)
class ScriptText:
    """The text of a script, and how it is started.

    A script that is `alone` runs in an empty folder. Otherwise it runs in the folder in which the
    user started the original, and can import what lies beside the original.
    """

    text: str
    args: tuple[str, ...] = ()
    alone: bool = False

    @cached_property
    def key(self) -> str:
        """A key over the text, the arguments and the surroundings."""
        parts = (self.text, str(self.alone), *self.args)
        return blake2b("\0".join(parts).encode(), digest_size=8).hexdigest()

    @cached_property
    def size(self) -> int:
        """The number of lines that are not blank, at least 1."""
        return max(1, sum(1 for line in self.text.splitlines() if line.strip()))

    def with_text(self, text: str) -> ScriptText:
        """Return the same start of another text."""
        return replace(self, text=text)


def variables_set_first(text: str, given: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of torch that a script makes in its environment before torch reads them.

    torch reads most variables when it is imported, and inductor its own when something is compiled.
    `given` are the variables before. Only literal values at the beginning of a script count.
    """
    try:
        statements = ast.parse(text).body
    except SyntaxError:
        return {}
    found: dict[str, str] = {}
    imported = False
    for statement in statements:
        if isinstance(statement, ast.Import | ast.ImportFrom):
            names = _imported(statement)
            if any(name.partition(".")[0] not in HARMLESS or READS.search(name) for name in names):
                break
            imported = imported or any(name.startswith("torch") for name in names)
        defines = isinstance(statement, ast.FunctionDef | ast.ClassDef)
        if not defines and "compile" in ast.unparse(statement):
            break
        for name, value, default in _assigned(statement):
            late = imported and not name.startswith(LAZY)
            if is_setting(name) and not late and not (default and name in {**given, **found}):
                found[name] = value
    return found


def _imported(statement: ast.Import | ast.ImportFrom) -> list[str]:
    if isinstance(statement, ast.Import):
        return [alias.name for alias in statement.names]
    return [f"{statement.module or '.'}.{alias.name}" for alias in statement.names]


def _assigned(statement: ast.stmt) -> Iterator[tuple[str, str, bool]]:
    """Yield the variables that a statement sets: name, value, and whether only if it is not set."""
    match statement:
        case ast.Assign(
            targets=[ast.Subscript(value=where, slice=ast.Constant(str(name)))],
            value=ast.Constant(str(value)),
        ) if ast.unparse(where) in ENVIRONMENTS:
            yield name, value, False
        case ast.Expr(
            ast.Call(
                func=ast.Attribute(value=where, attr="setdefault"),
                args=[ast.Constant(str(name)), ast.Constant(str(value))],
            )
        ) if ast.unparse(where) in ENVIRONMENTS:
            yield name, value, True
        case ast.Expr(
            ast.Call(func=ast.Attribute(value=where, attr="update"), args=given, keywords=named)
        ) if ast.unparse(where) in ENVIRONMENTS:
            for table in given:
                if isinstance(table, ast.Dict):
                    for key, set_to in zip(table.keys, table.values, strict=True):
                        if isinstance(key, ast.Constant) and isinstance(set_to, ast.Constant):
                            yield str(key.value), str(set_to.value), False
            for keyword in named:
                if keyword.arg and isinstance(keyword.value, ast.Constant):
                    yield keyword.arg, str(keyword.value.value), False
