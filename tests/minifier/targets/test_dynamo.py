"""The units of Dynamo: a frame is a unit, its statements are prefixes, a fault ends at its line."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch_versions import needs_torch

from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.gate.gate import Decision
from tcdebug.compiler.gate.toggles import Toggles
from tcdebug.minifier.bisection.bisect import bisect
from tcdebug.minifier.cases.outcome import Kind, Outcome
from tcdebug.minifier.targets import dynamo
from tests.minifier.support.stale_reuse import STALE, Scenario

FACTOR = 2.0


def helper(x: torch.Tensor) -> torch.Tensor:
    return x.sin()


def program(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    a = x + 1
    b = a * y
    for k in range(2):
        b = b - k
    c = helper(b)
    with torch.no_grad():
        d = c / FACTOR
    parts = [v.exp() for v in (c, d)]
    return parts[0] @ parts[1]


NODES = ["add", "mul", "sub", "sub", "sin", "_set_grad_enabled", "truediv", "_set_grad_enabled",
         "exp", "exp", "matmul"]  # fmt: skip
ENDS = [0, 0, 1, 2, 4, 5, 8, 10, 11]
"""Nodes captured with the first n decisions: that of the frame, then those of its statements."""


def captured(
    function: Callable[..., Any], toggles: list[str], fullgraph: bool = False
) -> tuple[list[list[str]], list[Decision], torch.Tensor]:
    """Return the graphs that Dynamo captures under toggles, the decisions, and the result."""
    torch._dynamo.reset()
    graphs: list[list[str]] = []

    def backend(module: torch.fx.GraphModule, inputs: Any) -> Any:
        calls = [n for n in module.graph.nodes if n.op.startswith("call")]
        graphs.append([getattr(n.target, "__name__", n.target) for n in calls])
        return module

    with dynamo.switched(Toggles.parse(toggles), EventLog(None)) as gate:
        x = torch.ones(3)
        result = torch.compile(function, backend=backend, fullgraph=fullgraph)(x, x)
    return graphs, gate.decisions, result


@pytest.mark.parametrize("fullgraph", [False, True])
def test_the_first_n_decisions_capture_exactly_a_prefix_of_the_frame(fullgraph: bool) -> None:
    whole, decisions, result = captured(program, [], fullgraph)
    assert whole == [NODES]
    assert [d.unit for d in decisions] == ["dynamo.frame.program", *["dynamo.line"] * 7]
    for count, end in enumerate(ENDS):
        graphs, asked, again = captured(program, [f"all:{count}"], fullgraph)
        assert graphs == ([NODES[:end]] if end else [])
        assert [d.site for d in asked if d.allowed] == [d.site for d in decisions[:count]]
        torch.testing.assert_close(again, result)


def test_a_statement_names_its_line_and_what_it_depends_on() -> None:
    _, decisions, _ = captured(program, [])
    first = inspect.getsourcelines(program)[1]
    subjects = [d.subject.partition("test_dynamo.py:")[2] for d in decisions]
    assert subjects[0] == f"{first}"
    assert subjects[4] == f"{first + 5}: c = helper(b)  (call of `helper`)"
    assert subjects[6].endswith("for v in (c, d)]  (comprehension, call of `v.exp`)")


def test_a_frame_that_is_off_runs_in_eager_and_what_it_calls_is_captured() -> None:
    graphs, decisions, _ = captured(program, ["dynamo.frame.program"])
    assert graphs == [["sin"]]
    assert decisions[1].unit == "dynamo.frame.helper"


def length(names: list[str]) -> int:
    return len(names)


def calls_without_tensors(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    count = length(["a", "b"]) + sum(k for k in counted())
    return x + y * count


def counted() -> Any:
    yield from (1, 2)


@pytest.mark.parametrize("fullgraph", [False, True])
def test_a_called_function_without_tensors_is_captured_by_itself(fullgraph: bool) -> None:
    """A generator, which Dynamo does not capture by itself, runs in eager."""
    _, decisions, result = captured(
        calls_without_tensors, ["dynamo.frame.calls_without_tensors"], fullgraph
    )
    asked = [(d.unit, d.subject.partition(": ")[2]) for d in decisions]
    assert asked[1:] == [
        ("dynamo.frame.length", ""),
        ("dynamo.line", "return len(names)  (call of `len`)"),
    ]
    torch.testing.assert_close(result, torch.full((3,), 6.0))


def chained(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    for k in range(2):
        with torch.no_grad():
            x = torch.sin(x.exp() + k) * torch.cos(y)
    return x


@pytest.mark.parametrize("fullgraph", [False, True])
def test_capture_ends_at_the_nth_call_inside_a_block(fullgraph: bool) -> None:
    """Each call is asked about where it is reached first. All that follows runs in eager."""
    nodes, asked, right = captured(chained, ["dynamo.call:99"], fullgraph)
    whole = [n for n in nodes[0] if n != "_set_grad_enabled"]
    assert whole == ["exp", "add", "sin", "cos", "mul"] * 2
    calls = [d.subject.partition(": ")[2] for d in asked if d.unit == "dynamo.call"]
    assert calls == [
        "range(2)", "torch.no_grad()", "x.exp()", "torch.sin(x.exp() + k)", "torch.cos(y)",
    ]  # fmt: skip
    for count, end in enumerate((0, 0, 0, 2, 3)):
        graphs, asked, result = captured(chained, [f"dynamo.call:{count}"], fullgraph)
        assert [n for g in graphs for n in g if n != "_set_grad_enabled"] == whole[:end]
        assert [d.allowed for d in asked if d.unit == "dynamo.call"] == [True] * count + [False]
        torch.testing.assert_close(result, right)
    graphs, asked, result = captured(chained, ["dynamo.call"], fullgraph)
    assert [(d.unit, d.allowed) for d in asked][-1] == ("dynamo.call", False)
    torch.testing.assert_close(result, right)


def doubled(x: torch.Tensor) -> torch.Tensor:
    y = x.sin()
    return (y * 2).sum()


@pytest.mark.parametrize(
    "transform",
    [
        pytest.param(torch.func.grad, marks=needs_torch("2.12", "Dynamo refuses this function")),
        torch.func.vmap,
    ],
)
def test_a_function_that_torch_func_calls_in_eager_is_captured_by_itself(transform: Any) -> None:
    def transformed(x: torch.Tensor, y: torch.Tensor) -> Any:
        return transform(doubled)(x[0] if transform is torch.func.grad else x)

    _, _, right = captured(transformed, [])
    of_torch = ["dynamo.frame.wrapper", "dynamo.frame.wrapped"]
    graphs, decisions, result = captured(transformed, ["dynamo.frame.transformed", *of_torch])
    assert graphs == [["sin", "mul", "sum"]]
    assert [d.unit for d in decisions if d.allowed][:2] == ["dynamo.frame.doubled", "dynamo.line"]
    torch.testing.assert_close(result, right)


def test_nothing_is_captured_after_a_single_statement_that_is_off() -> None:
    _, decisions, result = captured(program, [])
    graphs, asked, again = captured(program, [f"site:{decisions[3].site}"])
    assert graphs == [NODES[:2]]
    assert len(asked) == 4
    torch.testing.assert_close(again, result)


def test_lines_continue_after_a_graph_break_of_the_program_itself() -> None:
    def broken(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        z = x + y
        torch._dynamo.graph_break()
        z = z * 2
        return z.sin()

    graphs, decisions, _ = captured(broken, [])
    assert graphs == [["add"], ["mul", "sin"]]
    kinds = [(d.unit, d.subject.partition(": ")[2]) for d in decisions]
    assert kinds == [
        ("dynamo.frame.broken", ""),
        ("dynamo.line", "z = x + y"),
        ("dynamo.line", "torch._dynamo.graph_break()  (call of `torch._dynamo.graph_break`)"),
        ("dynamo.frame.broken", ""),
        ("dynamo.line", "torch._dynamo.graph_break()  (call of `torch._dynamo.graph_break`)"),
        ("dynamo.line", "z = z * 2"),
        ("dynamo.line", "return z.sin()  (call of `z.sin`)"),
    ]
    assert captured(broken, ["all:6"])[0] == [["add"], ["mul"]]


def test_the_statements_of_a_try_and_of_its_finally_are_asked_about_one_by_one() -> None:
    """A handler belongs to the statement that raises."""
    opened: dict[str, int] = {}

    def tries(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        try:
            z = torch.sin(x)
            z = z + opened.get("missing", 1)
            raise ValueError
        except ValueError:
            z = y * z
        try:
            try:
                z = torch.exp(z)
            except KeyError:
                z = y
            with torch.no_grad():
                z = z.abs()
        finally:
            z = z.neg()
        return z.cos()

    expected = tries(torch.ones(3), torch.ones(3))
    whole, decisions, _ = captured(tries, [])
    assert [d.subject.partition(": ")[2].partition("  (")[0] for d in decisions] == [
        "",
        "try:",
        "z = torch.sin(x)",
        'z = z + opened.get("missing", 1)',
        "raise ValueError",
        "try:",
        "try:",
        "z = torch.exp(z)",
        "with torch.no_grad():",
        "z = z.neg()",
        "return z.cos()",
    ]
    for count in range(1, len(decisions) + 1):
        graphs, _, result = captured(tries, [f"all:{count}"])
        assert torch.equal(result, expected)
        assert not graphs or graphs[0] == whole[0][: len(graphs[0])]


def test_a_frame_of_which_nothing_can_be_captured_without_its_first_line_is_skipped() -> None:
    def begins_inside(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        try: z = x.sin()  # fmt: skip # noqa: E701
        except ValueError: z = y  # fmt: skip # noqa: E701
        return z.cos()

    ends = [captured(begins_inside, [f"all:{count}"])[0] for count in range(4)]
    assert ends == [[], [], [["sin"]], [["sin", "cos"]]]


def test_a_frame_that_is_captured_again_is_not_asked_again() -> None:
    asked: list[int] = []
    with dynamo.switched(Toggles(), EventLog(None)) as gate:
        torch._dynamo.reset()
        once = torch.compile(helper, backend="eager")
        for size in (2, 3, 4):
            once(torch.ones(size))
            asked.append(len(gate.decisions))
    assert asked == [2, 2, 2]


def test_without_toggles_fullgraph_still_raises() -> None:
    def broken(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        torch._dynamo.graph_break()
        return x + y

    with pytest.raises(torch._dynamo.exc.Unsupported):
        captured(broken, [], fullgraph=True)


def test_graph_breaks_of_the_program_still_raise_under_fullgraph_before_a_cut() -> None:
    def broken(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        z = x + y
        torch._dynamo.graph_break()
        return z * 2

    graphs, _, result = captured(broken, ["all:2"], fullgraph=True)
    assert graphs == [["add"]]
    torch.testing.assert_close(result, torch.full((3,), 4.0))
    with pytest.raises(torch._dynamo.exc.Unsupported):
        captured(broken, ["all:3"], fullgraph=True)


def test_a_frame_without_tensors_is_captured_under_fullgraph_although_units_are_off() -> None:
    """Without fullgraph, Dynamo leaves such a frame to Python, and so does its fault."""

    def only_numbers(x: torch.Tensor, y: torch.Tensor) -> Any:
        count = len("abc")
        return torch.compiler.is_compiling(), count

    assert captured(only_numbers, ["all:1"], fullgraph=True)[2] == (False, 3)
    assert captured(only_numbers, ["all:3"], fullgraph=True)[2] == (True, 3)


def same(left: Any, right: Any) -> bool:
    return all(torch.allclose(a, b) for a, b in zip(left, right, strict=True))


def compiled_alone(function: Any) -> Any:
    return torch.compile(function, backend="eager")


@pytest.mark.parametrize("scenario", STALE, ids=lambda s: s.__name__)
def test_a_missing_guard_leads_to_the_line_that_read_the_value(scenario: Scenario) -> None:
    wanted = scenario(lambda function: function)

    def ask(toggles: Toggles, purpose: str) -> Outcome:
        torch._dynamo.reset()
        with dynamo.switched(toggles, EventLog(None)) as gate:
            right = same(scenario(compiled_alone), wanted)
        kind, signature = (Kind.OK, "") if right else (Kind.WRONG, "wrong")
        return Outcome(kind, "script", signature, decisions=tuple(gate.decisions))

    failure = ask(Toggles(), "as it is")
    if not failure.failed and torch.__version__ < "2.12":
        pytest.skip("this torch guards the value")
    assert failure.failed
    verdict = bisect(ask, failure, Toggles(), EventLog(None))
    assert verdict.confirmed
    lines, start = inspect.getsourcelines(scenario)
    (offset,) = (k for k, line in enumerate(lines) if "# stale" in line)
    (found,) = verdict.decisions()
    assert found.unit == "dynamo.line"
    assert f"stale_reuse.py:{start + offset}: " in found.subject
