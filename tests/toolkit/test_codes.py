"""Error codes: each code is used, and each used code is explained once."""

from __future__ import annotations

import ast
import traceback
from pathlib import Path

import pytest

from tcdebug.commands import explain
from tcdebug.compiler.configuration.options import BadOption
from tcdebug.compiler.errors.codes import CODES, PATTERN
from tcdebug.compiler.errors.exceptions import Coded, CompileError
from tcdebug.compiler.gate.toggles import BadToggle
from tcdebug.compiler.runtime import build, toolchain

ROOT = Path(__file__).parents[2]
SOURCES = sorted(p for f in ("compiler", "toolkit") for p in (ROOT / f).rglob("*.py"))


def told() -> set[str]:
    """Every code that a source file passes to `error`, or assigns to an exception."""
    found: set[str] = set()
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                if node.func.id == "error":
                    code = node.args[0]
                    if isinstance(code, ast.Constant):
                        found.add(code.value)
                    else:  # the code of an exception, which its class assigns
                        assert ast.unparse(code).endswith(".code"), f"{path}: a code comes first"
            elif isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "code":
                found |= {node.value.value} if isinstance(node.value, ast.Constant) else set()
    return found


def test_every_error_code_is_raised_somewhere_and_explained() -> None:
    assert told() == {code.name for code in CODES}
    assert len({code.title for code in CODES}) == len(CODES)
    assert [code.name for code in CODES] == sorted(code.name for code in CODES)
    for code in CODES:
        assert PATTERN.fullmatch(code.name)
        assert code.why.endswith(".")
        assert code.todo.endswith((".", "`"))


@pytest.mark.parametrize(
    "error",
    [
        CompileError("lower", "no"), BadToggle("no"), BadOption("no"),
        build.BuildError("no"), toolchain.NoCompiler("no"),
    ],
)  # fmt: skip
def test_a_traceback_ends_with_the_code_and_the_message_stays_as_it_was(error: Coded) -> None:
    assert str(error).endswith("no")
    lines = traceback.format_exception_only(error)
    assert lines[-1] == f"{error.code}: tcdebug explain {error.code}\n"


def test_a_code_is_explained_in_any_case_and_a_wrong_one_is_a_usage_error(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert explain.run(script="tcd012", args=(), backend=None, style="full") == 0
    assert "TCD012  the script compiles no graph" in capsys.readouterr().out
    assert explain.run(script="TCD999", args=(), backend=None, style="full") == 2
    assert "error TCD016: no such script or code: 'TCD999'" in capsys.readouterr().err
