"""The short form of a repro: plain torch, kept only if it fails as the repro does."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from captured import captured
from torch._dynamo.exc import InvalidBackend

from tcdebug.minifier.cases.case import Case
from tcdebug.minifier.cases.outcome import Kind, Outcome
from tcdebug.minifier.repros.repro import Repro
from tcdebug.minifier.repros.short import fails_alike, short_forms, write_short
from tcdebug.minifier.repros.verify import Verified

WRONG = Outcome(Kind.WRONG, "forward", "forward | wrong value", "output 0: 1 of 3 out of tolerance")
BACKWARD = Outcome(Kind.WRONG, "backward", "backward | wrong value")
NO_SUCH = InvalidBackend("no_such")
EXCEPTION = Outcome(
    Kind.EXCEPTION,
    "compile",
    "compile | InvalidBackend | " + str(NO_SUCH).replace("'no_such'", "<name>"),
    f"InvalidBackend: {NO_SUCH}",
)


def case(function: Callable[..., Any], *, gradient: bool = False) -> Case:
    return captured(function, torch.ones(3, requires_grad=gradient))


def test_a_graph_of_one_operator_is_a_script_of_fifteen_lines() -> None:
    (text,) = short_forms(case(torch.sin), Repro(WRONG, {"backend": "inductor"}))
    lines = text.splitlines()
    assert lines[:2] == ["# wrong in forward: output 0: 1 of 3 out of tolerance", "import torch"]
    assert lines[-3:] == [
        "eager = f(*inputs())",
        "compiled = torch.compile(f)(*inputs())",
        "torch.testing.assert_close(compiled, eager, equal_nan=True, rtol=0.0001, atol=1e-05)",
    ]
    assert 12 <= len(lines) <= 20
    assert "tcdebug" not in text


def test_arguments_that_the_script_gave_are_given() -> None:
    call = {"backend": "inductor", "mode": "max-autotune", "options": {"triton.cudagraphs": True}}
    (text,) = short_forms(case(torch.sin), Repro(WRONG, call))
    given = "torch.compile(f, mode='max-autotune', options={'triton.cudagraphs': True})"
    assert given in text


def test_a_program_that_is_packaged_is_exported_and_loaded() -> None:
    call = {"backend": "aotinductor", "options": {"max_autotune": True}}
    (text,) = short_forms(case(torch.sin, gradient=True), Repro(WRONG, call))
    lines = text.splitlines()
    assert lines[-5:-1] == [
        "eager = f(*inputs())",
        "program = torch.export.export(f, tuple(inputs()))",
        "package = torch._inductor.aoti_compile_and_package("
        "program, inductor_configs={'max_autotune': True})",
        "compiled = torch._inductor.aoti_load_package(package)(*inputs())",
    ]
    assert "f = Graph()" in lines


PROGRAMS: dict[str, Callable[..., Any]] = {
    "one operator": torch.sin,
    "two outputs": lambda x: (x.sin(), {"a": x + 1}),
    "an operator with a state": lambda x: torch.nn.functional.softmax(x, 0) * 2,
}


@pytest.mark.parametrize("outcome", [WRONG, BACKWARD, EXCEPTION], ids=lambda o: o.direction)
@pytest.mark.parametrize("program", PROGRAMS)
def test_a_short_form_of_a_healthy_graph_runs_to_its_end(
    program: str, outcome: Outcome, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = Repro(outcome, {"backend": "eager"})
    texts = [*short_forms(case(PROGRAMS[program], gradient=True), content)]
    assert texts
    for text in texts:
        module = ModuleType("short")
        monkeypatch.setitem(sys.modules, "short", module)  # Dynamo may import it by its name
        exec(compile(text, "short.py", "exec"), vars(module))


@pytest.mark.parametrize(
    "content",
    [
        Repro(WRONG, {"backend": "inductor"}, setup="def set_up(then): then()"),
        Repro(WRONG, {"backend": "inductor"}, variables={"A": "1"}),
        Repro(WRONG, {"backend": None}),
        Repro(WRONG, {"backend": "compile_fx"}),
        Repro(Outcome(Kind.HANG, "compile", "compile | hang"), {"backend": "inductor"}),
    ],
)
def test_a_failure_that_needs_more_than_its_graph_has_no_short_form(content: Repro) -> None:
    assert list(short_forms(case(torch.sin), content)) == []


TRACE = """Traceback (most recent call last):
  File "short.py", line 9, in <module>
    g()
{}
"""


@pytest.mark.parametrize(
    ("outcome", "status", "last", "alike"),
    [
        (WRONG, 1, "AssertionError: Tensor-likes are not close!", True),
        (WRONG, 1, "RuntimeError: nothing of the kind", False),
        (WRONG, 0, "", False),
        (EXCEPTION, 1, f"torch._dynamo.exc.{EXCEPTION.message}", True),
        (EXCEPTION, 1, "torch._dynamo.exc.InvalidBackend: another message", False),
        (EXCEPTION, 1, "TypeError: Invalid backend", False),
        (Outcome(Kind.CRASH, "forward", "forward | SIGSEGV"), -11, "", True),
        (Outcome(Kind.CRASH, "forward", "forward | SIGSEGV"), 1, "", False),
    ],
)
def test_how_a_short_form_must_end(outcome: Outcome, status: int, last: str, alike: bool) -> None:
    assert fails_alike(Verified(status, 1.0, TRACE.format(last)), outcome) is alike


@pytest.mark.usefixtures("warm")
def test_a_short_form_is_kept_only_if_it_fails_in_the_same_way(tmp_path: Path) -> None:
    path = tmp_path / "short.py"
    content = Repro(EXCEPTION, {"backend": "no_such"})
    assert sys.executable
    assert write_short(case(torch.sin), content, path) == path
    assert "torch.compile(f, backend='no_such')" in path.read_text()
    assert write_short(case(torch.sin), Repro(WRONG, {"backend": "eager"}), path) is None
    assert not path.exists()
