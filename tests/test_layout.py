"""The layout that docs/architecture.md describes: packages, layers, sizes, names, private torch."""

from __future__ import annotations

import ast
import importlib.metadata
import re
import subprocess
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = {"compiler": "tcdebug.compiler", "minifier": "tcdebug.minifier", "toolkit": "tcdebug"}
SOURCES = sorted(p for folder in FOLDERS for p in (ROOT / folder).rglob("*.py"))
OURS = [*SOURCES, *sorted((ROOT / "tests").rglob("*.py")), *sorted((ROOT / "docs").rglob("*.py"))]

ALLOWED_AT_THE_TOP = {
    "compiler", "minifier", "toolkit", "tests", "docs",
    "pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "CONTRIBUTING.md",
}  # fmt: skip

FORBIDDEN = {
    "compiler": ("tcdebug.minifier", "tcdebug.<toolkit>", "rich", "hypothesis", "torch._inductor"),
    "minifier": ("tcdebug.<toolkit>", "rich", "hypothesis"),
}
"""The modules that nothing in a folder imports; tcdebug.<toolkit> means the rest of tcdebug."""

BESIDE = {"tcdebug_autoload": "toolkit/autoload"}
"""Packages that are not installed under tcdebug, and their folders."""

SAYS_NOTHING = {"utils", "util", "helpers", "helper", "common", "misc", "manager", "base"}

MOST_LINES, MOST_LINES_OF_A_FUNCTION = 650, 80
WANTED_LINES, WANTED_LINES_OF_A_FUNCTION = 400, 60
LONGER_THAN_WANTED = {
    "compiler/lower/special_functions/chebyshev_rows.py": "a generated table: nothing but numbers",
}
"""Source files longer than wanted but allowed, each with its reason."""

PRINTS = {
    "minifier/sessions/execution.py": 'does what sys.exit("text") does for a script',
    "minifier/repros/judge/graph_judge.py": "the main program of repro scripts",
}
"""Modules outside toolkit/display that call print, each with its reason."""


def relative(path: Path) -> str:
    """A path in the form of this file's tables."""
    return path.relative_to(ROOT).as_posix()


def project() -> dict[str, Any]:
    """The contents of pyproject.toml."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def module_name(path: Path) -> str:
    """The import name of a source file: tcdebug.cli.main for toolkit/cli/main.py."""
    for name, folder in BESIDE.items():
        if path.parent == ROOT / folder:
            return name
    folder, *rest = path.relative_to(ROOT).with_suffix("").parts
    return ".".join([FOLDERS[folder], *(r for r in rest if r != "__init__")])


MODULES = {module_name(path): path for path in SOURCES}


@cache
def parsed(path: Path) -> ast.Module:
    """The syntax tree of a file of the repository."""
    return ast.parse(path.read_text())


@cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    """All nodes of the syntax tree of a file."""
    return tuple(ast.walk(parsed(path)))


def top_level_imports(path: Path) -> Iterator[str]:
    """The imports of a module at import time: not in functions, not for type checkers."""
    stack: list[ast.AST] = [parsed(path)]
    while stack:
        node = stack.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        yield from _imported(node)
        stack.extend(ast.iter_child_nodes(node))


@cache
def all_imports(path: Path) -> tuple[str, ...]:
    """All imports of a module, in functions too."""
    return tuple(name for node in nodes(path) for name in _imported(node))


def _imported(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        for alias in node.names:
            full = f"{node.module}.{alias.name}"
            yield full if full in MODULES else f"{node.module}"


# -- packages ---------------------------------------------------------------------------------


def test_every_folder_with_an_init_is_a_package_that_is_shipped() -> None:
    settings = project()["tool"]["setuptools"]
    found = {module_name(p) for p in SOURCES if p.name == "__init__.py"}
    assert found == set(settings["packages"])
    folders = {name: folder for folder, name in FOLDERS.items()}
    assert settings["package-dir"] == {"": "toolkit"} | folders | BESIDE


def test_every_file_that_is_not_python_is_shipped_as_package_data() -> None:
    data = project()["tool"]["setuptools"]["package-data"]
    for folder, package in FOLDERS.items():
        for path in (ROOT / folder).rglob("*"):
            if not path.is_file() or path.suffix in (".py", ".pyc") or "egg-info" in str(path):
                continue
            parts = path.relative_to(ROOT / folder).parent.parts
            patterns = data.get(".".join([package, *parts]), [])
            assert any(path.match(pattern) for pattern in patterns), relative(path)


def test_the_top_of_the_repository_holds_only_what_is_allowed() -> None:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if listed.returncode != 0:
        pytest.skip("not a git checkout")
    entries = {line.partition("/")[0] for line in listed.stdout.splitlines()}
    assert {e for e in entries if not e.startswith(".")} - ALLOWED_AT_THE_TOP == set()


def test_no_module_has_a_name_that_says_nothing() -> None:
    assert [relative(p) for p in SOURCES if p.stem in SAYS_NOTHING] == []


# -- layers -----------------------------------------------------------------------------------


def _layer(name: str) -> str:
    """tcdebug.<toolkit>.cli for a module of the toolkit; other names are unchanged."""
    if name == "tcdebug" or name.startswith("tcdebug."):
        inner = (FOLDERS["compiler"], FOLDERS["minifier"])
        if not name.startswith(tuple(f"{i}." for i in inner)) and name not in inner:
            return "tcdebug.<toolkit>" + name.removeprefix("tcdebug")
    return name


@pytest.mark.parametrize("folder", sorted(FORBIDDEN))
def test_imports_go_from_toolkit_to_minifier_to_compiler(folder: str) -> None:
    wrong = [
        f"{relative(path)} imports {name}"
        for path in sorted((ROOT / folder).rglob("*.py"))
        for name in all_imports(path)
        for banned in FORBIDDEN[folder]
        if _layer(name) == banned or _layer(name).startswith(banned + ".")
    ]
    assert wrong == []


def test_a_forbidden_import_would_be_noticed() -> None:
    assert _layer("tcdebug.cli.main") == "tcdebug.<toolkit>.cli.main"
    assert _layer("tcdebug") == "tcdebug.<toolkit>"
    assert _layer("tcdebug.minifier.cases.case") == "tcdebug.minifier.cases.case"
    assert _layer("torch._inductor.config") == "torch._inductor.config"


def test_imports_are_absolute() -> None:
    for path in SOURCES:
        for node in nodes(path):
            assert not (isinstance(node, ast.ImportFrom) and node.level), relative(path)


def circle(graph: Mapping[str, set[str]]) -> str:
    """A cycle of a graph, as text; empty if there is none."""
    done: set[str] = set()

    def visit(name: str, trail: tuple[str, ...]) -> str:
        if name in trail:
            return " -> ".join([*trail[trail.index(name) :], name])
        if name not in done:
            for other in sorted(graph.get(name, ())):
                if found := visit(other, (*trail, name)):
                    return found
            done.add(name)
        return ""

    return next((found for name in sorted(graph) if (found := visit(name, ()))), "")


def test_no_modules_import_each_other_in_a_circle() -> None:
    graph = {
        name: {i for i in all_imports(path) if i in MODULES and i != name}
        for name, path in MODULES.items()
    }
    assert circle(graph) == ""


def package(name: str, depth: int) -> str:
    """The folder of a module, up to this depth in its layer; outside of folders, the module."""
    path = Path(relative(MODULES[name]))
    folders = path.parent.parts[: depth + 1]
    return "/".join(folders) if len(folders) > 1 else str(path)


@pytest.mark.parametrize(
    ("folder", "depth"), [("compiler", 1), ("compiler", 3), ("minifier", 1), ("toolkit", 1)]
)
def test_no_packages_of_a_layer_import_each_other_in_a_circle(folder: str, depth: int) -> None:
    graph: dict[str, set[str]] = defaultdict(set)
    for name, path in MODULES.items():
        if path.is_relative_to(ROOT / folder):
            inner = {i for i in all_imports(path) if i in MODULES}
            own = package(name, depth)
            graph[own] |= {package(i, depth) for i in inner} - {own}
    assert circle(graph) == ""


def test_a_circle_is_found_and_named() -> None:
    assert package("tcdebug.compiler.codegen.cpp.kernel", 1) == "compiler/codegen"
    assert package("tcdebug.compiler.codegen.cpp.kernel", 3) == "compiler/codegen/cpp"
    assert package("tcdebug.compiler.pipeline", 1) == "compiler/pipeline.py"
    assert circle({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == "b -> c -> b"
    assert circle({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == ""


@pytest.mark.parametrize(
    "statement",
    [
        "import tcdebug",
        "from tcdebug.cli.main import main; sys.argv = ['tcdebug', '--help']; main()",
        "from tcdebug.cli.main import main; sys.argv = ['tcdebug', 'bisect', '--help']; main()",
        "from tcdebug.commands import bisect, explain, fuzz, logs, minify, report, repro, run",
    ],
)
def test_only_the_processes_that_run_a_script_load_torch(statement: str) -> None:
    code = (
        "import sys\n"
        f"try:\n    exec({statement!r})\nexcept SystemExit:\n    pass\n"
        "sys.stderr.write(str('torch' in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == "False"


def test_a_session_that_starts_imports_no_modules_of_inductor() -> None:
    """They take 0.7 of 4.7 CPU-seconds. A search that needs them imports them before it forks."""
    seen: set[str] = set()
    reached = {"tcdebug.minifier.sessions.script_session"}
    while reached:
        name = reached.pop()
        seen.add(name)
        parents = {name.rsplit(".", n)[0] for n in range(1, name.count("."))}
        found = {*top_level_imports(MODULES[name]), *parents} if name in MODULES else set()
        reached |= found - seen
    assert "tcdebug.minifier.sessions.search" in seen
    assert sorted(n for n in seen if n.startswith("torch._inductor")) == ["torch._inductor"]


# -- sizes and output -------------------------------------------------------------------------


def too_long(path: Path) -> Iterator[str]:
    """What is too long in a file: the file, or functions."""
    source = path in SOURCES
    most = MOST_LINES if not source or relative(path) in LONGER_THAN_WANTED else WANTED_LINES
    text = path.read_text()
    if (count := text.count("\n")) > most:
        yield f"{path} has {count} lines"
    longest = WANTED_LINES_OF_A_FUNCTION if source else MOST_LINES_OF_A_FUNCTION
    for node in nodes(path) if source else ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or 0) - node.lineno + 1
            if lines > longest:
                yield f"{node.name} in {path} has {lines} lines"


def test_files_and_functions_are_short() -> None:
    assert [found for path in OURS for found in too_long(path)] == []


def test_a_file_and_a_function_that_are_too_long_are_found(tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text("def short():\n    pass\n\n\ndef long():\n" + 80 * "    pass\n" + 600 * "\n")
    assert list(too_long(path)) == [f"{path} has 685 lines", f"long in {path} has 81 lines"]


def test_every_file_that_may_be_long_still_is() -> None:
    for name in LONGER_THAN_WANTED:
        assert (ROOT / name).read_text().count("\n") > WANTED_LINES, f"{name} needs no exception"


MOST_FILES = 16
"""Maximum number of Python files in a folder, without `__init__.py`."""


def test_no_folder_holds_too_many_files() -> None:
    files: dict[str, int] = defaultdict(int)
    for path in SOURCES:
        files[relative(path.parent)] += path.name != "__init__.py"
    assert {folder: count for folder, count in files.items() if count > MOST_FILES} == {}


def test_no_class_name_occurs_twice() -> None:
    classes: dict[str, list[str]] = defaultdict(list)
    for path in SOURCES:
        for node in nodes(path):
            if isinstance(node, ast.ClassDef):
                classes[node.name.lstrip("_")].append(relative(path))
    twice = {name: tuple(sorted(where)) for name, where in classes.items() if len(where) > 1}
    assert twice == {}


def test_only_the_display_prints_and_the_linter_watches_over_it() -> None:
    assert "T20" in project()["tool"]["ruff"]["lint"]["select"]
    printing = {
        relative(path)
        for path in SOURCES
        for node in nodes(path)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "print"
        and "toolkit/display" not in relative(path)
    }
    assert printing == set(PRINTS)


def test_only_the_display_imports_rich() -> None:
    importing = {
        relative(path)
        for path in SOURCES
        if any(name.partition(".")[0] == "rich" for name in all_imports(path))
        and "toolkit/display" not in relative(path)
    }
    assert importing == {"toolkit/cli/main.py"}  # the traceback of an internal error


# -- private torch ----------------------------------------------------------------------------

PRIVATE = re.compile(r"\btorch((?:\.\w+)*?\.(?!__)_\w+(?:\.\w+)*)")
BY_NAME = re.compile(
    r"""(\._schema|"_schema(?=")|\._boxed_call|\.shape_env|\.node\.hint|_TorchCompile\w*)\b"""
)
ROW = re.compile(r"^\| `([^`]+)` \| ([^|]+) \|", re.MULTILINE)


def private_uses(path: Path) -> set[str]:
    """The private names of torch in a source file or a template."""
    text = path.read_text()
    if path.suffix != ".py":
        return {f"torch{m}" for m in PRIVATE.findall(text)}
    found: set[str] = set()
    for node in nodes(path):
        if isinstance(node, ast.ImportFrom) and node.module and PRIVATE.match(node.module + "."):
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            found.update(a.name for a in node.names if PRIVATE.match(a.name))
        elif isinstance(node, ast.Attribute):
            name = dotted(node)
            if name.startswith("torch.") and PRIVATE.match(name):
                found.add(name)
    for literal in _strings(path):
        found.update(f"torch{m}" for m in PRIVATE.findall(literal.replace(":", ".")))
    found = {f for f in found if not any(o != f and o.startswith(f + ".") for o in found)}
    code = "\n".join(line.partition("#")[0] for line in text.splitlines())
    return found | {m.lstrip('."') for m in BY_NAME.findall(code)}


def dotted(node: ast.expr) -> str:
    """The name that attributes of a name are: torch._dynamo.reset. Empty for other expressions."""
    if isinstance(node, ast.Name):
        return node.id
    owner = dotted(node.value) if isinstance(node, ast.Attribute) else ""
    return f"{owner}.{node.attr}" if isinstance(node, ast.Attribute) and owner else ""


def _strings(path: Path) -> Iterator[str]:
    """String constants that are not docstrings: code that is written or run later."""
    statements = {id(n.value) for n in nodes(path) if isinstance(n, ast.Expr)}
    for node in nodes(path):
        plain = isinstance(node, ast.Constant) and id(node) not in statements
        if plain and isinstance(node.value, str):
            yield node.value


def documented_uses() -> set[tuple[str, str]]:
    """(file, name) of every row of docs/private-torch.md."""
    rows = ROW.findall((ROOT / "docs" / "private-torch.md").read_text())
    return {(file, name) for name, files in rows for file in re.findall(r"`([^`]+)`", files)}


def test_private_names_of_torch_stand_only_where_the_documentation_says() -> None:
    templates = sorted((ROOT / "minifier").rglob("*.tmpl"))
    found = {(relative(p), name) for p in [*SOURCES, *templates] for name in private_uses(p)}
    documented = documented_uses()
    assert sorted(found - documented) == [], "not in docs/private-torch.md"
    assert sorted(documented - found) == [], "in docs/private-torch.md only"


def test_a_private_name_is_found_in_an_import_an_attribute_and_a_string(tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text(
        '"""About torch._nothing.here."""\n'
        "from torch._guards import CompileContext\n"
        "import torch\n"
        "torch._dynamo.reset()\n"
        "text = 'torch._C._nn.gelu(x)'\n"
        "public = torch.nn.functional.gelu\n"
        "target._schema.is_mutable\n"
    )
    assert private_uses(path) == {
        "torch._guards.CompileContext", "torch._dynamo.reset", "torch._C._nn.gelu", "_schema",
    }  # fmt: skip


def test_what_is_imported_at_the_top_is_declared_as_a_dependency() -> None:
    declared = {re.split(r"[><=\[ ]", d)[0] for d in project()["project"]["dependencies"]}
    brought_by_torch = {"sympy", "typing_extensions"}
    optional = {"triton": "compiler/", "hypothesis": "toolkit/", "pytest": "toolkit/api/pytest_"}
    known = declared | brought_by_torch | sys.stdlib_module_names | {"tcdebug"}
    wrong = [
        f"{relative(path)} imports {root}"
        for path in SOURCES
        for root in {name.partition(".")[0] for name in top_level_imports(path)}
        if root not in known and not relative(path).startswith(optional.get(root, "nowhere"))
    ]
    assert wrong == []


def test_the_root_of_a_clone_has_no_entry_points_for_a_python_that_starts_there() -> None:
    """torch loads the entry points on sys.path, also with a Python that does not have tcdebug."""
    found = importlib.metadata.distributions(path=[str(ROOT)])
    assert [d.name for d in found] == []
