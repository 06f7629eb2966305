"""Whether two printed tracebacks show one error of the script itself.

PYTEST_DONT_REWRITE: the assertions of the programs here are compiled as a script's are.
"""

from __future__ import annotations

import io
import traceback
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tcdebug.compiler.events.log import EventLog
from tcdebug.minifier.capture.identity import compile_is_identity
from tcdebug.minifier.subjects.own_errors import ended_alike, may_count_compiles, raised_alike

Program = Callable[[], Any]


def wrong_shape() -> None:
    def step(x: torch.Tensor) -> torch.Tensor:
        return x.sin() @ torch.ones(5, 2)

    torch.compile(step, backend="eager")(torch.ones(3, 4))


def helper(x: torch.Tensor, name: Any) -> torch.Tensor:
    return x * len(name.upper())


def wrong_type() -> None:
    def step(x: torch.Tensor) -> torch.Tensor:
        return helper(x, 3)

    torch.compile(step, backend="eager", fullgraph=True)(torch.ones(3))


def missing_key() -> None:
    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * {"a": 1.0}["b"]

    torch.compile(Model(), backend="eager", fullgraph=True)(torch.ones(3))


def failing_assertion() -> None:
    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            assert (x - 5 > 0).all(), "activations must be positive"
            return x.log()

    torch.compile(Model(), backend="eager")(torch.ones(3))


def assertion_without_message() -> None:
    def step(x: torch.Tensor) -> torch.Tensor:
        assert x.sum() > 9
        return x.log()

    torch.compile(step, backend="eager")(torch.ones(3))


def error_in_backward() -> None:
    class Project(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x * 2

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
            return grad @ torch.ones(5, 2)

    def step(x: torch.Tensor) -> torch.Tensor:
        return Project.apply(x).sum()  # type: ignore[no-any-return, no-untyped-call]

    torch.compile(step, backend="eager")(torch.ones(3, 4, requires_grad=True)).backward()


def gradient_of_overwritten_values() -> None:
    def step(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        gate = torch.sigmoid(x * w)
        y = gate * x
        gate.zero_()
        return y.sum()

    w = torch.ones(4, requires_grad=True)
    loss = torch.compile(step, backend="aot_eager")(torch.ones(4), w)
    loss.backward()


def gradient_of_a_wrong_shape() -> None:
    class Half(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x * 2

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
            return grad[:2]

    def step(x: torch.Tensor) -> torch.Tensor:
        return Half.apply(x).sum()  # type: ignore[no-any-return, no-untyped-call]

    loss = torch.compile(step, backend="aot_eager")(torch.ones(3, requires_grad=True))
    loss.backward()


def error_in_a_hook() -> None:
    model = torch.nn.Sequential(torch.nn.ReLU())
    model[0].register_forward_hook(lambda module, args, out: out.view(7, -1))
    torch.compile(model, backend="eager", fullgraph=True)(torch.ones(2, 3))


def index_of_the_data() -> None:
    def step(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        return x[i] * 2

    torch.compile(step, backend="aot_eager")(torch.ones(3), torch.tensor([7]))


def wrong_shape_for_a_module_of_torch() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(3, 1))
    torch.compile(model, backend="eager")(torch.ones(2, 4))


def wrong_target_for_a_loss_of_torch() -> None:
    loss = torch.compile(torch.nn.CrossEntropyLoss(), backend="eager")
    loss(torch.ones(2, 4), torch.ones(3, dtype=torch.int64))


def wrong_mask_for_an_encoder_of_torch() -> None:
    layer = torch.nn.TransformerEncoderLayer(8, 2, batch_first=True)
    torch.compile(layer, backend="eager")(torch.ones(2, 5, 8), torch.zeros(4, 4))


def assertion_on_compiles() -> None:
    compiles = 0

    def count(graph: torch.fx.GraphModule, inputs: Any) -> Any:
        nonlocal compiles
        compiles += 1
        return graph.forward

    step = torch.compile(lambda x, n: x * n, backend=count, dynamic=False)
    for n in (2, 3):
        step(torch.ones(3), n)
    assert compiles == 1, "compiled twice" if compiles else "nothing was compiled"


def needs_to_be_compiled() -> None:
    def step(x: torch.Tensor) -> torch.Tensor:
        if not torch.compiler.is_compiling():
            raise RuntimeError("compile me")
        return x @ torch.ones(5, 2)

    torch.compile(step, backend="eager")(torch.ones(3, 4))


def needs_to_be_compiled_in_several_lines() -> None:
    def step(x: torch.Tensor) -> torch.Tensor:
        assert (
            x.ndim == 2 * torch.compiler.is_compiling()
        ), "this function is slow in eager"  # fmt: skip
        return torch.linalg.inv(x)

    torch.compile(step, backend="eager")(torch.ones(2, 2))


def needs_to_be_compiled_and_fails_in_its_graph() -> None:
    def step(x: torch.Tensor) -> torch.Tensor:
        if not torch.compiler.is_compiling():
            raise RuntimeError("compile me")
        return torch.linalg.inv(x)

    torch.compile(step, backend="eager")(torch.ones(2, 2))


def output_of(program: Program) -> str:
    """Return what a run of the program prints when it raises."""
    torch._dynamo.reset()
    text = io.StringIO()
    try:
        program()
    except Exception:
        traceback.print_exc(file=text)
    assert text.getvalue(), "the program does not fail"
    return text.getvalue()


def both(program: Program) -> SimpleNamespace:
    with compile_is_identity(EventLog(None)):
        eager = output_of(program)
    return SimpleNamespace(eager=eager, compiled=output_of(program))


@pytest.mark.parametrize(
    "program",
    [
        wrong_shape, wrong_type, missing_key, failing_assertion, assertion_without_message,
        error_in_backward, error_in_a_hook, index_of_the_data, gradient_of_overwritten_values,
        gradient_of_a_wrong_shape,
        wrong_shape_for_a_module_of_torch, wrong_target_for_a_loss_of_torch,
        wrong_mask_for_an_encoder_of_torch,
    ],
)  # fmt: skip
def test_an_error_of_a_compiled_function_is_raised_at_one_place(program: Program) -> None:
    found = both(program)
    assert raised_alike(found.eager, found.compiled), found.compiled


@pytest.mark.parametrize(
    "program",
    [
        assertion_on_compiles, needs_to_be_compiled, needs_to_be_compiled_and_fails_in_its_graph,
        needs_to_be_compiled_in_several_lines,
    ],
)  # fmt: skip
def test_an_error_of_another_place_is_another_error(program: Program) -> None:
    found = both(program)
    assert not raised_alike(found.eager, found.compiled), found.compiled


FAILED = """Traceback (most recent call last):
  File "s.py", line 9, in <module>
    assert compiles == 1, compiles
AssertionError: 0
"""
INSIDE = FAILED.replace(
    'File "s.py", line 9, in <module>\n',
    'File "minifier/capture/identity.py", line 4, in call\n  File "s.py", line 9, in f\n',
)
OWN = "import torch\ndef count(graph, inputs):\n    return graph\n"


@pytest.mark.parametrize(
    ("source", "output", "counts"),
    [
        (OWN + "torch.compile(f, backend=count)", FAILED, True),
        (OWN + "own = wrap(count)\ntorch.compile(f, backend=own)", FAILED, True),
        (OWN + "torch.compile(f, backend=lambda g, i: count(g, i))", FAILED, True),
        ("from torch._dynamo.utils import counters", FAILED, True),
        ("cnt = torch._dynamo.testing.CompileCounter()", FAILED, True),
        ("cnt = CompileCounterWithBackend('inductor')", "FAILED (failures=1)", True),
        ("cnt = CompileCounter()", FAILED.replace("assert compiles", "assert_close(a"), False),
        ("cnt = CompileCounter()", INSIDE, False),
        (OWN + "torch.compile(f)", FAILED, False),
        ("BACKEND = 'inductor'\ntorch.compile(f, backend=BACKEND)", FAILED, False),
    ],
)  # fmt: skip
def test_a_script_may_count_compiles_if_it_can_and_asserts_outside_compiled_functions(
    source: str, output: str, counts: bool
) -> None:
    assert may_count_compiles(output, source) == counts


def test_two_runs_end_alike_if_the_program_is_at_the_same_statements_of_all_its_functions() -> None:
    torch_frame = (
        f'  File "{Path(torch.__file__).parent}/autograd/graph.py", line 7, in run\n    f()\n'
    )

    def output(*lines: int, inner: str = "", error: str = "KeyError: 1") -> str:
        text = "".join(f'  File "s.py", line {n}, in step\n    g()\n' for n in lines)
        return f"warning\nTraceback (most recent call last):\n{text}{inner}{error}\n"

    assert ended_alike(output(9, 3), output(9, 3, inner=torch_frame, error="ValueError: 2"))
    assert not ended_alike(output(9, 3), output(9, 4))
    assert not ended_alike(output(8, 3), output(9, 3))
    assert not ended_alike("it was killed", "it was killed")
