"""Repro scripts: complete files that judge themselves, and are run before they are announced."""

from __future__ import annotations

import ast
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from captured import captured
from hypothesis import given
from hypothesis import strategies as st
from property_settings import property_settings
from torch.utils.checkpoint import checkpoint

from tcdebug.minifier.cases.ambient import Ambient
from tcdebug.minifier.cases.case import Case, CaseInput, clone_values
from tcdebug.minifier.cases.outcome import Kind, Outcome
from tcdebug.minifier.cases.settings import assignments
from tcdebug.minifier.judging.compare import difference
from tcdebug.minifier.reduction.details.simplify_inputs import SimplifyInputs
from tcdebug.minifier.repros.inputs_text import input_text
from tcdebug.minifier.repros.repro import Repro, expected, write, write_passing
from tcdebug.minifier.repros.verify import (
    AS_CALLED,
    IN_SCRIPT,
    LATE,
    Settled,
    settle,
    verify,
    verify_switched,
)

PROPERTY = property_settings(150)
WRONG = Outcome(Kind.WRONG, "forward", "forward | wrong value", "output 0: 1 of 2 out of tolerance")
EAGER = {"backend": "aot_eager"}


def seeded(case: Case) -> Case:
    simple = SimplifyInputs()
    return simple.apply(case, simple.edits(case)) or case


def written(case: Case, path: Path, content: Repro | None = None) -> tuple[str, str]:
    """Return the text of a repro script, and the origin of its inputs."""
    kind = write(case, content or Repro(WRONG, EAGER), path)
    return path.read_text(), kind


ENDLESS = Outcome(Kind.HANG, "forward", "forward | hang", "a kernel does not end", endless=True)


def namespace_of(path: Path) -> dict[str, Any]:
    """Return what a repro script defines, without running it."""
    names: dict[str, Any] = {"__file__": str(path), "__name__": "repro"}
    exec(compile(path.read_text(), str(path), "exec", dont_inherit=True), names)
    return names


def imported(text: str) -> set[str]:
    """Return what a script always imports. With --off it may import more."""
    roots: set[str] = set()
    body = ast.parse(text).body
    for node in [*body, *(n for tried in body if isinstance(tried, ast.Try) for n in tried.body)]:
        if isinstance(node, ast.Import):
            roots |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            roots.add(str(node.module).partition(".")[0])
    return roots


def linear(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return torch.relu(x @ w).sum(-1)


# -- the text -------------------------------------------------------------------------------


def test_a_standalone_script_needs_only_torch_and_reveals_nothing_about_this_machine(
    tmp_path: Path,
) -> None:
    case = captured(linear, torch.randn(2, 3), torch.randn(3, 4))
    content = Repro(WRONG, EAGER, ambient=Ambient(deterministic=True), standalone=True)
    text, kind = written(seeded(case), tmp_path / "repro.py", content)
    assert kind == "seeded"
    assert imported(text) - set(sys.stdlib_module_names) == {"torch"}
    for place in (str(tmp_path), str(Path.home()), str(Path(__file__).parents[3]), sys.prefix):
        assert place not in text
    assert [p.name for p in tmp_path.iterdir()] == ["repro.py"]


def test_a_script_says_what_it_is_about(tmp_path: Path) -> None:
    case = captured(linear, torch.randn(2, 3), torch.randn(3, 4))
    call = {"backend": "tcdebug", "options": {"off": ["passes.cse"]}}
    text, _ = written(case, tmp_path / "repro.py", Repro(WRONG, call, ("fuse.inline", "memory")))
    doc = ast.get_docstring(ast.parse(text))
    assert doc is not None
    lines = doc.splitlines()
    assert lines[0] == "A wrong result of torch.compile: forward | wrong value"
    assert "failure   wrong, forward: output 0: 1 of 2 out of tolerance" in lines
    assert "culprit   fuse.inline, memory" in lines
    assert "graph     3 nodes, 2 inputs" in lines
    assert lines[-1] == ("It passes with the culprit switched off: --off=fuse.inline --off=memory")
    assert namespace_of(tmp_path / "repro.py")["CALL"] == call


def test_quotes_and_backslashes_in_a_message_do_no_harm(tmp_path: Path) -> None:
    outcome = Outcome(Kind.EXCEPTION, "compile", "compile | E", 'E: """ \\N{x} $name\n\\')
    case = captured(torch.sin, torch.ones(2))
    text, _ = written(case, tmp_path / "repro.py", Repro(outcome, EAGER))
    ast.parse(text)
    assert namespace_of(tmp_path / "repro.py")["EXPECTED"] == {
        "kind": "exception", "class": "E", "what": '<name>" \\N{x} $name',
    }  # fmt: skip


@pytest.mark.parametrize(
    ("outcome", "expectation"),
    [
        (WRONG, {"kind": "wrong", "what": "forward | wrong value"}),
        (
            Outcome(Kind.EXCEPTION, "compile", "compile | lower | KeyError", "KeyError: 'tanh'"),
            {"kind": "exception", "class": "KeyError", "what": "<name>"},
        ),
        (
            Outcome(
                Kind.EXCEPTION,
                "compile",
                "compile | KeyError | cases/outcome.py:normalised | <name>",
                "KeyError: 'tanh'",
            ),
            {
                "kind": "exception",
                "class": "KeyError",
                "what": "<name>",
                "frame": "cases/outcome.py:normalised",
            },
        ),
        (
            Outcome(Kind.EXCEPTION, "compile", "compile | E | user/model.py:f | # a", "E: 7 a"),
            {"kind": "exception", "class": "E", "what": "# a"},
        ),
        (  # a script that was started as `python outcome.py`
            Outcome(Kind.EXCEPTION, "compile", "compile | E | outcome.py:f | # a", "E: 7 a"),
            {"kind": "exception", "class": "E", "what": "# a"},
        ),
        (Outcome(Kind.CRASH, "forward", "forward | SIGSEGV"), {"kind": "crash"}),
        (Outcome(Kind.HANG, "compile", "compile | hang"), {"kind": "hang"}),
        (Outcome(Kind.KILLED, "compile", "compile | out of memory"), {"kind": "killed"}),
        (Outcome(Kind.CRASH, "forward", "forward | ended"), {"kind": ["crash", "hang"]}),
        (Outcome(Kind.OK), {"kind": "ok"}),
    ],
)
def test_what_a_script_expects(outcome: Outcome, expectation: dict[str, str]) -> None:
    assert expected(outcome) == expectation


@pytest.mark.parametrize(
    ("ambient", "line"),
    [
        (Ambient(grad=False), "torch.set_grad_enabled(False)"),
        (Ambient(inference=True), "torch.inference_mode().__enter__()"),
        (
            Ambient(autocast="torch.bfloat16"),
            'torch.autocast("cpu", dtype=torch.bfloat16).__enter__()',
        ),
        (Ambient(default_dtype="torch.float64"), "torch.set_default_dtype(torch.float64)"),
        (Ambient(deterministic=True), "torch.use_deterministic_algorithms(True)"),
    ],
)
def test_a_script_sets_the_state_of_torch(ambient: Ambient, line: str, tmp_path: Path) -> None:
    case = captured(torch.sin, torch.ones(2))
    text, _ = written(case, tmp_path / "repro.py", Repro(WRONG, EAGER, ambient=ambient))
    here = next(n for n in ast.parse(text).body if getattr(n, "name", "") == "prepare")
    assert line in (ast.get_source_segment(text, here) or "").replace("    ", "")
    assert Ambient().text() == ""


def test_the_current_state_of_torch_is_recorded() -> None:
    changed = assignments()  # even CI=1 in the environment changes one
    assert Ambient.current() == Ambient(settings=changed)
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        inside = Ambient(grad=False, autocast="torch.bfloat16", settings=changed)
        assert Ambient.current() == inside


def test_inductor_runs_without_its_caches(tmp_path: Path) -> None:
    case = captured(torch.sin, torch.ones(2))
    text, _ = written(case, tmp_path / "repro.py", Repro(WRONG, {"backend": "inductor"}))
    assert 'os.environ["TORCHINDUCTOR_FX_GRAPH_CACHE"] = ' in text
    assert "INDUCTOR" not in written(case, tmp_path / "other.py")[0]


def test_dynamic_dimensions_are_marked(tmp_path: Path) -> None:
    case = captured(linear, torch.randn(2, 3), torch.randn(3, 4), dynamic=True)
    text, _ = written(case, tmp_path / "repro.py")
    assert "        dynamic=[(0, 0)" in text


@pytest.mark.usefixtures("warm")
def test_the_nearest_passing_case_is_written_beside_with_its_differences(tmp_path: Path) -> None:
    case = captured(linear, torch.randn(2, 3), torch.randn(3, 4))
    passing = captured(lambda x, w: torch.sigmoid(x @ w).sum(-1), *case.values())
    content = Repro(WRONG, EAGER, ("fuse.inline",), passing=passing)
    text, _ = written(seeded(case), tmp_path / "repro.py", content)
    doc = ast.get_docstring(ast.parse(text))
    assert doc is not None
    start = doc.index("The nearest graph that passes")
    assert doc[start:].splitlines()[:5] == [
        "The nearest graph that passes differs in:",
        "    - relu = torch.relu(matmul)",
        "    - sum_1 = relu.sum(-1)",
        "    + sigmoid = torch.sigmoid(matmul)",
        "    + sum_1 = sigmoid.sum(-1)",
    ]
    assert write_passing(seeded(passing), content, tmp_path / "repro_passes.py") == "seeded"
    other = (tmp_path / "repro_passes.py").read_text()
    assert other.startswith('"""A graph that torch.compile gets right\n')
    assert "It exits with 0 if it passes, with 1 if it fails" in other
    assert "culprit" not in other
    done = verify(tmp_path / "repro_passes.py")
    assert done.output == "found    {'kind': 'ok'}\nexpected {'kind': 'ok'}\nit does not fail\n"


def test_only_the_beginning_of_a_large_difference_is_shown(tmp_path: Path) -> None:
    def long(x: torch.Tensor) -> torch.Tensor:
        for _ in range(20):
            x = x.sin()
        return x

    case, passing = captured(torch.cos, torch.ones(2)), captured(long, torch.ones(2))
    text, _ = written(case, tmp_path / "repro.py", Repro(WRONG, EAGER, passing=passing))
    assert "    and 13 more lines" in text


def test_all_inputs_are_stored_on_request(tmp_path: Path) -> None:
    case = seeded(captured(linear, torch.randn(2, 3), torch.randn(3, 4)))
    assert write(case, Repro(WRONG, EAGER), tmp_path / "repro.py", store=True) == "stored"
    check_inputs(case, tmp_path / "repro.py")


# -- graph and inputs -----------------------------------------------------------------------


def check_inputs(case: Case, path: Path) -> dict[str, Any]:
    """Check that the script's graph on the script's inputs gives the results of the case."""
    names = namespace_of(path)
    made = names["inputs"]()
    for spec, value in zip(case.inputs, made, strict=True):
        if not isinstance(spec.value, torch.Tensor):
            assert value == spec.value
            continue
        assert (value.dtype, value.shape) == (spec.value.dtype, spec.value.shape)
        assert value.stride() == spec.value.stride()
        assert value.requires_grad == spec.value.requires_grad
        torch.testing.assert_close(value, spec.value, rtol=0, atol=0, equal_nan=True)
    torch.manual_seed(0)
    actual = names["Graph"]()(*made)
    torch.manual_seed(0)
    wanted = case.module(*clone_values(case.values()))
    torch.testing.assert_close(actual, wanted, equal_nan=True)
    return names


SMALL = [
    torch.tensor([[1.0, -2.5], [3.25, 1e-30]]).t(),
    torch.tensor([math.nan, math.inf, -math.inf, -0.0]),
    torch.tensor([1, -5, 2**40]),
    torch.tensor([True, False]),
    torch.tensor([1.5, -2.0]).to(torch.bfloat16),
    torch.tensor([0.1, 0.2], dtype=torch.float64, requires_grad=True),
    torch.tensor(2.5),
    torch.empty(0, 3),
    torch.arange(8.0)[3:],
    torch.ones(2, 1).expand(2, 3),
]
LARGE = [
    torch.randn(100),
    torch.randn(20, 30).t(),
    torch.tensor([1 + 2j]),
    torch.tensor([1 + 2j]).conj(),
    torch.tensor([1.0, 2.0]).to(torch.float8_e4m3fn),
    torch.arange(80.0)[3:],
    torch.ones(80, 1).expand(80, 3),
]


@pytest.mark.parametrize("value", SMALL)
def test_a_small_input_is_written_out(value: torch.Tensor, tmp_path: Path) -> None:
    case = captured(lambda x: torch.cat([x.view_as(x), x]) if x.dim() else x.clone(), value)
    _, kind = written(case, tmp_path / "repro.py")
    assert kind == "inlined"
    check_inputs(case, tmp_path / "repro.py")


@pytest.mark.parametrize("value", LARGE)
def test_other_inputs_are_stored(value: torch.Tensor, tmp_path: Path) -> None:
    case = captured(lambda x: x.clone(), value)
    text, kind = written(case, tmp_path / "repro.py")
    assert kind == "stored"
    assert (tmp_path / "repro.safetensors").exists()
    assert imported(text) - set(sys.stdlib_module_names) == {"torch"}
    check_inputs(case, tmp_path / "repro.py")


def test_seeded_inputs_have_the_same_numbers(tmp_path: Path) -> None:
    def function(x: torch.Tensor, k: torch.Tensor, half: torch.Tensor, m: Any) -> torch.Tensor:
        return x[k] + half.float().sum() + m.sum()

    args = (
        torch.randn(50, 30).t().requires_grad_(),
        torch.randint(0, 30, (90,)),
        torch.randn(80).to(torch.bfloat16),
        torch.rand(70) > 0.5,
    )
    case = seeded(captured(function, *args))
    _, kind = written(case, tmp_path / "repro.py")
    assert kind == "seeded"
    check_inputs(case, tmp_path / "repro.py")


def test_inputs_that_share_memory_do_so_in_the_script(tmp_path: Path) -> None:
    base = torch.zeros(6)
    case = captured(lambda a, b: a.add_(1).sum() + b.sum(), base[:4], base[2:])
    _, kind = written(case, tmp_path / "repro.py")
    assert kind == "inlined"
    first, second = namespace_of(tmp_path / "repro.py")["inputs"]()
    first.fill_(5.0)
    assert second.tolist() == [5.0, 5.0, 0.0, 0.0]


def test_numbers_are_inputs_too(tmp_path: Path) -> None:
    graph = torch.fx.Graph()
    x, n, f = (graph.placeholder(k) for k in ("x", "n", "f"))
    graph.output((graph.call_function(torch.clamp, (x, n, f)),))
    inputs = (CaseInput("x", torch.ones(3)), CaseInput("n", 2), CaseInput("f", math.inf))
    case = Case(torch.fx.GraphModule({}, graph), inputs)
    written(case, tmp_path / "repro.py")
    check_inputs(case, tmp_path / "repro.py")
    assert input_text(CaseInput("f", -math.inf)) == "float('-inf')"
    assert input_text(CaseInput("x", torch.ones(1))) == "torch.tensor([1.0], dtype=torch.float32)"


def test_names_of_the_script_and_of_inputs_do_not_clash(tmp_path: Path) -> None:
    graph = torch.fx.Graph()
    names = ["L_data_", "L_torch_", "L_inputs_", "L_os_", "L_stored_", "L_Graph_", "L_inf_"]
    nodes = [graph.placeholder(n) for n in names]
    graph.output((graph.call_function(torch.stack, (nodes,)),))
    inputs = tuple(CaseInput(n, torch.full((100,), float(k))) for k, n in enumerate(names))
    case = Case(torch.fx.GraphModule({}, graph), inputs)
    written(case, tmp_path / "repro.py")
    check_inputs(case, tmp_path / "repro.py")


def checkpointed(x: torch.Tensor) -> torch.Tensor:
    return checkpoint(lambda y: (y @ y).sin(), x, use_reentrant=False).masked_fill(x > 0, -math.inf)


class Sine(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        return grad * ctx.saved_tensors[0]


@pytest.mark.parametrize(
    "function",
    [
        checkpointed,
        lambda x: torch.cond(x.sum() > 0, torch.sin, lambda y: y.cos(), (x,)),
        lambda x: Sine.apply(x) * 2,
    ],
)
def test_nested_graphs_are_in_the_script(function: Callable[..., Any], tmp_path: Path) -> None:
    case = captured(function, torch.ones(2, 2, requires_grad=True))
    text, _ = written(case, tmp_path / "repro.py")
    assert imported(text) - set(sys.stdlib_module_names) == {"torch"}
    check_inputs(case, tmp_path / "repro.py")


def test_constants_of_the_graph_are_stored(tmp_path: Path) -> None:
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    graph.output((graph.call_function(torch.add, (x, graph.get_attr("a.c"))),))
    root = torch.nn.Module()
    root.a = torch.nn.Module()
    root.a.register_buffer("c", torch.tensor([1.0, 2.0]))
    case = Case(torch.fx.GraphModule(root, graph), (CaseInput("x", torch.ones(2)),))
    _, kind = written(case, tmp_path / "repro.py")
    assert kind == "inlined"
    names = check_inputs(case, tmp_path / "repro.py")
    assert names["Graph"]()(torch.zeros(2))[0].tolist() == [1.0, 2.0]


# -- the judge of the script ----------------------------------------------------------------

NUMBERS = st.sampled_from(
    [0.0, 1.0, 1.00005, 1.0009, 1.01, 1.02, 1.05, -1.0, 70000.0, math.inf, -math.inf, math.nan]
)
DTYPES = [
    torch.float64, torch.float32, torch.bfloat16, torch.float16, torch.float8_e4m3fn,
    torch.complex64, torch.int64, torch.bool,
]  # fmt: skip


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return what any standalone repro script defines."""
    torch._dynamo.reset()
    path = tmp_path_factory.mktemp("repro") / "repro.py"
    write(captured(torch.sin, torch.ones(2)), Repro(WRONG, EAGER, standalone=True), path)
    return namespace_of(path)


def tensor(values: list[float], dtype: torch.dtype) -> torch.Tensor:
    exact = torch.tensor(values, dtype=torch.float64)
    return exact.to(dtype) if dtype.is_floating_point else exact.nan_to_num(7, 8, 9).to(dtype)


def test_the_script_judges_as_the_minifier_does(script: dict[str, Any]) -> None:
    @PROPERTY
    @given(st.data(), st.sampled_from(DTYPES), st.integers(1, 3), st.booleans())
    def same(data: st.DataObject, dtype: torch.dtype, size: int, referenced: bool) -> None:
        draw = st.lists(NUMBERS, min_size=size, max_size=size)
        eager, actual = tensor(data.draw(draw), dtype), tensor(data.draw(draw), dtype)
        exact = tensor(data.draw(draw), torch.float64) if referenced else None
        found = difference(eager, actual, exact, "")
        assert script["difference"](eager, actual, exact) == (found.what if found else None)

    same()


@pytest.mark.parametrize(
    ("eager", "actual"),
    [
        (1.0, 1.0 + 1e-9), (1.0, 1.1), (math.nan, math.nan), (1, 1.0), (1, 2), (None, None),
        (torch.ones(2), torch.ones(3)), (torch.ones(2), torch.ones(2).double()),
        (torch.ones(()), 1.0), (torch.tensor([1 + 2j]).conj(), torch.tensor([1 - 2j])),
        (torch.ones(2).to_sparse(), torch.ones(2).to_sparse() * 2),
    ],
)  # fmt: skip
def test_the_script_judges_odd_values_as_the_minifier_does(
    script: dict[str, Any], eager: Any, actual: Any
) -> None:
    found = difference(eager, actual, None, "")
    assert script["difference"](eager, actual, None) == (found.what if found else None)


# -- scripts that run -----------------------------------------------------------------------

PLANT = """
def planted(module, inputs):
    {body}


def set_up(then):
    torch._dynamo.register_backend(planted)
    then()
"""


def planted_repro(folder: Path, outcome: Outcome, body: str) -> Path:
    """Write a repro of tanh for a backend with this body."""
    case = captured(lambda x: x.tanh() * 2, torch.ones(3, requires_grad=True))
    seconds = 2.0 if outcome.kind is Kind.HANG else 60.0
    setup = PLANT.format(body=body)
    content = Repro(outcome, {"backend": "planted"}, setup=setup, seconds=seconds)
    write(seeded(case), content, folder / "repro.py")
    return folder / "repro.py"


def test_a_wrong_number_is_reproduced_in_a_fresh_process(tmp_path: Path) -> None:
    body = "return lambda *values: [v + 1 for v in module(*values)]"
    done = verify(planted_repro(tmp_path, WRONG, body))
    assert (done.status, done.reproduced) == (1, True), done.output
    assert "found    {'kind': 'wrong', 'what': 'forward | wrong value'}" in done.output
    assert done.output.endswith("it fails as expected\n")


@pytest.mark.parametrize(("runs", "status"), [(3, 1), (2, 0)])
@pytest.mark.usefixtures("warm")
def test_if_a_failure_is_flaky_several_runs_must_pass(
    tmp_path: Path, runs: int, status: int
) -> None:
    ran = tmp_path / "ran"
    setup = PLANT.format(
        body=f"open({str(ran)!r}, 'a').write('x')\n"
        f"    if len(open({str(ran)!r}).read()) == 3: raise KeyError('tanh')\n"
        "    return module.forward"
    )
    case = captured(lambda x: x.tanh() * 2, torch.ones(3))
    content = Repro(EXCEPTION, {"backend": "planted"}, setup=setup, runs=runs)
    write(case, content, tmp_path / "repro.py")
    done = verify(tmp_path / "repro.py")
    assert done.status == status, done.output
    assert ran.read_text() == "x" * runs


@pytest.mark.usefixtures("warm")
def test_a_repro_of_the_compiler_takes_units_and_stored_data(tmp_path: Path) -> None:
    """Run elsewhere, with only its data. Nothing is wrong here, whatever is off."""
    case = captured(checkpointed, torch.randn(12, 12, requires_grad=True))
    content = Repro(WRONG, {"backend": "tcdebug", "options": {"log": False}}, ("fuse",))
    assert write(case, content, tmp_path / "repro.py") == "stored"
    (tmp_path / "unrelated.py").write_text("")
    done = verify(tmp_path / "repro.py", ["fuse"])
    assert (done.status, done.reproduced) == (0, False), done.output
    assert done.output.endswith("it does not fail\n")


EXCEPTION = Outcome(Kind.EXCEPTION, "compile", "compile | KeyError", "KeyError: 'tanh'")
ELSEWHERE = Outcome(
    Kind.EXCEPTION,
    "compile",
    "compile | KeyError | cases/outcome.py:normalised | <name>",
    "KeyError: 'tanh'",
)
CRASH = Outcome(Kind.CRASH, "forward", "forward | SIGSEGV")
ENDED = Outcome(Kind.CRASH, "compile", "compile | ended")
HANG = Outcome(Kind.HANG, "compile", "compile | hang")


@pytest.mark.parametrize(
    ("outcome", "body", "status", "output"),
    [
        (EXCEPTION, "raise KeyError('tanh')", 1, "'class': 'KeyError', 'message': \"'tanh'\""),
        (EXCEPTION, "raise ValueError('tanh')", 125, "'class': 'ValueError'"),
        (EXCEPTION, "raise KeyError('tanh', 'sin')", 125, "undecided: it fails in a different way"),
        (ELSEWHERE, "raise KeyError('tanh')", 125, "'what': '<name>'"),
        (EXCEPTION, "return module.forward", 0, "it does not fail"),
        (CRASH, "import ctypes; return lambda *v: ctypes.string_at(0)", 1, "'signal': 11"),
        (CRASH, "import os; os._exit(3)", 125, "'kind': 'unknown', 'phase': 'forward'"),
        (ENDED, "import os; os.abort()", 1, "'kind': 'crash', 'phase': 'forward', 'signal': 6"),
        (Outcome(Kind.OK), "raise KeyError('tanh')", 1, "it fails, but the graph passed when "),
        (Outcome(Kind.OK), "return module.forward", 0, "it does not fail"),
        (HANG, "import time; time.sleep(1000)", 1, "{'kind': 'hang'"),
        (WRONG, "return lambda *values: [v[1:] for v in module(*values)]", 125, "wrong shape"),
        (WRONG, "return lambda *values: [v.double() for v in module(*values)]", 125, "dtype"),
        (
            Outcome(Kind.WRONG, "backward", "backward | wrong value"),
            "return lambda *values: [v + 1 for v in module(*values)]",
            125,
            "forward | wrong value",
        ),
    ],
)
@pytest.mark.usefixtures("backward_after_fork")
def test_how_a_script_ends(
    outcome: Outcome,
    body: str,
    status: int,
    output: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    names = namespace_of(planted_repro(tmp_path, outcome, body))
    monkeypatch.setattr(sys, "argv", ["repro.py"])
    with open(1, "w", closefd=False, buffering=1) as stdout:
        monkeypatch.setattr(sys, "stdout", stdout)  # the child writes to descriptor 1
        assert names["main"]() == status
    printed = capfd.readouterr()
    assert output in printed.out
    raised = "found    {'kind': 'exception'" in printed.out
    assert ("Traceback (most recent call last):" in printed.err) == raised


@pytest.mark.parametrize(
    "body", ["raise ValueError('eager')", "import os; os.abort()", "import os; os._exit(0)"]
)
@pytest.mark.usefixtures("backward_after_fork")
@pytest.mark.usefixtures("warm")
def test_a_failure_in_eager_is_undecided(
    body: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = planted_repro(tmp_path, CRASH, "return module.forward")
    text = path.read_text()
    head, _, tail = text.partition("        return (")
    path.write_text(f"{head}        {body}\n        return ({tail}")
    done = verify(path)
    assert (done.status, done.reproduced) == (125, False)
    assert "undecided: eager fails" in done.output


@pytest.mark.usefixtures("warm")
def test_the_simplest_variant_that_fails_is_kept(tmp_path: Path) -> None:
    path = planted_repro(tmp_path, EXCEPTION, "return module.forward")
    failing = planted_repro(tmp_path / "other", EXCEPTION, "raise KeyError('tanh')")
    failing.replace(tmp_path / AS_CALLED)
    (tmp_path / AS_CALLED).with_suffix(".safetensors").write_bytes(b"data")
    (tmp_path / IN_SCRIPT).write_text("never run")
    assert settle(path) is Settled.FAILS
    assert "raise KeyError('tanh')" in path.read_text()
    names = sorted(p.name for p in tmp_path.iterdir() if p.is_file())
    assert names == ["repro.log", "repro.py", "repro.safetensors"]


@pytest.mark.usefixtures("warm")
def test_if_no_variant_fails_the_plain_one_is_kept(tmp_path: Path) -> None:
    path = planted_repro(tmp_path, EXCEPTION, "return module.forward")
    (tmp_path / IN_SCRIPT).write_text("")
    assert settle(path) is Settled.PASSES
    assert path.exists() and not (tmp_path / IN_SCRIPT).exists()
    assert (tmp_path / "repro.log").read_text().endswith("it does not fail\n")


@pytest.mark.usefixtures("warm")
def test_a_repro_that_does_not_end_is_not_reported_as_passing(tmp_path: Path) -> None:
    path = planted_repro(tmp_path, HANG, "import time; time.sleep(1000)")
    path.write_text(path.read_text().replace("seconds=2.0", "seconds=600.0"))
    assert settle(path, seconds=1.0) is Settled.UNKNOWN
    assert (tmp_path / "repro.log").read_text() == "the repro script did not end"


def test_the_runs_of_one_repro_share_their_seconds(tmp_path: Path) -> None:
    path = tmp_path / "repro.py"
    path.write_text("import time\ntime.sleep(600)")
    as_is, off, only = verify_switched(path, ["fuse"], ["only:fuse"], 1.0)
    assert as_is.late and as_is.seconds >= 1.0
    assert (off, only) == (LATE, LATE), "they were not started"


def test_a_repro_of_an_endless_kernel_watches_the_device_and_passes_once_kernels_end(
    tmp_path: Path,
) -> None:
    path = tmp_path / "repro.py"
    text, _ = written(captured(torch.sin, torch.ones(2)), path, Repro(ENDLESS, EAGER))
    assert "        watch=watch,\n" in text
    assert verify(path).status == 0
