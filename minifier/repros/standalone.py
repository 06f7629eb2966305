"""Puts the judge into a repro script, which then needs torch alone.

The default form of a repro script imports its judge from tcdebug. The standalone form contains the
text of the same modules, so both forms judge alike.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import resources

PACKAGE = "tcdebug.minifier.repros.judge"
MAIN = "\ndef main():\n"
CONTAINED = "\nclass GraphJudge:\n"
"""A line of a script that contains its judge."""
IMPORTED = f"        from {PACKAGE}."
"""The beginning of the lines with which a script imports its judge."""
IMPORTING = re.compile(
    rf"    try:\n(?P<imports>(?:{re.escape(IMPORTED)}.*\n)+)"
    r"    except ImportError as error:\n(?:        .*\n)+"
)
GRAPH = re.compile(r"^class Graph\(.*?^    return \[[^\n]*\]$", re.DOTALL | re.MULTILINE)
"""The graph and the inputs in a script."""
CONVERT = "tcdebug repro --standalone"
"""The command that puts the judge into a script."""


def importing_text(imports: Sequence[tuple[str, str]], name: str) -> str:
    """Return Python that imports names of the judge, as pairs of module and name.

    Where tcdebug is missing, the script is undecided, because Python's own status for an import
    that fails is that of a failure.
    """
    lines = [f"{IMPORTED}{module} import {what}" for module, what in imports]
    return "\n".join([
        "    try:",
        *lines,
        "    except ImportError as error:",
        '        print(f"undecided: {error}. The judge is in tcdebug: install it, or convert "',
        f'              "this script elsewhere: {CONVERT} {name}", file=sys.stderr)',
        "        return 125",
    ])  # fmt: skip


def judges_graph(text: str) -> bool:
    """Return whether a script is a repro of a graph, in either form."""
    return CONTAINED in text or IMPORTING.search(text) is not None


def standalone(text: str) -> str:
    """Return a repro script with its judge in it. Other scripts do not change."""
    found = IMPORTING.search(text)
    if found is None:
        return text
    head, _, rest = text.replace(found[0], "", 1).partition(MAIN)
    modules = dict.fromkeys(re.findall(rf"{re.escape(IMPORTED)}(\w+)", found["imports"]))
    return f"{head.rstrip()}\n\n\n{_judge_text(list(modules))}\n\n{MAIN}{rest}"


def _judge_text(modules: Sequence[str]) -> str:
    """Return the text of modules and of those that they import, with all imports first."""
    names: dict[str, set[str]] = {}
    bodies: dict[str, str] = {}
    for module in modules:
        for part in _with_dependencies(f"{PACKAGE}.{module}"):
            bodies.setdefault(part.module, part.text)
            for source, imported in part.imports:
                names.setdefault(source, set()).update(imported)
    whole = [f"import {source}" for source in sorted(names) if not names[source]]
    parts = [f"from {k} import {', '.join(sorted(names[k]))}" for k in sorted(names) if names[k]]
    return "\n".join([*whole, *parts, "", "\n\n".join(bodies.values())])


@dataclass(frozen=True)
class JudgePart:
    """A module that the judge needs, without its imports and the comments on its constants."""

    module: str
    text: str
    imports: Sequence[tuple[str, Sequence[str]]]
    """Pairs of a module and the names imported from it; no names mean the module itself."""


def _with_dependencies(module: str) -> Iterator[JudgePart]:
    """Yield the modules of tcdebug that a module needs, then itself."""
    package, _, name = module.rpartition(".")
    text = (resources.files(package) / f"{name}.py").read_text()
    tree = ast.parse(text)
    lines, imports = text.splitlines(), []
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef):
            for statement in node.body:
                if _is_text(statement) and statement is not node.body[0]:
                    _remove(lines, statement)
    _remove(lines, tree.body[0])
    for node in tree.body:
        match node:
            case ast.ImportFrom(module=str(source)) if source.startswith("tcdebug."):
                yield from _with_dependencies(source)
            case ast.ImportFrom(module=str(source)) if source != "__future__":
                imports.append((source, [alias.name for alias in node.names]))
            case ast.Import():
                imports += [(alias.name, []) for alias in node.names if alias.name != "torch"]
        if isinstance(node, ast.Import | ast.ImportFrom):
            _remove(lines, node)
    yield JudgePart(module, _without_gaps(lines), imports)


def _is_text(statement: ast.stmt) -> bool:
    """Return whether a statement is a string, which comments on what is before it."""
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _remove(lines: list[str], node: ast.stmt) -> None:
    last = node.end_lineno or node.lineno
    lines[node.lineno - 1 : last] = [""] * (last - node.lineno + 1)


def _without_gaps(lines: Sequence[str]) -> str:
    """Return lines with at most one empty line between two others."""
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines).strip())
