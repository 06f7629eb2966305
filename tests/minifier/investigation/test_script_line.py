"""The statement at which Dynamo goes wrong, in a script that fails as a whole."""

from __future__ import annotations

from pathlib import Path

import pytest
from torch_versions import needs_torch

from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.gate.gate import Decision
from tcdebug.minifier.investigation.script_line import (
    OWN_PATH,
    SuspectPlace,
    described,
    find_line,
    lines_at_fault,
    notes_on,
)
from tcdebug.minifier.processes.job import Job


def places_of(script: Path, text: str) -> tuple[SuspectPlace, ...]:
    """Write a script, and return the statement whose capture makes it fail, and the call in it."""
    script.write_text(text)
    folder = script.parent
    return find_line(Job("compiled", str(script), [], str(folder)), EventLog(folder), 500.0)


def statement_of(script: Path, text: str) -> SuspectPlace | None:
    """Write a script, and return the statement whose capture makes it fail."""
    places = places_of(script, text)
    return places[0] if places else None


SCRIPT = """
import torch

def make(op):
    def fn(x):
        y = x + 1
        z = op(y, x)
        return z.neg()
    return fn

for op, right in ((torch.Tensor.add, -7.0), (torch.Tensor.mul, {right})):
    result = torch.compile(make(op), backend="inductor", fullgraph=True)(torch.tensor(3.0))
    assert result.item() == right, result
"""


@pytest.mark.usefixtures("warm")
def test_a_script_that_dynamo_makes_fail_leads_to_the_statement(tmp_path: Path) -> None:
    found = statement_of(tmp_path / "stale.py", SCRIPT.format(right=-12.0))
    assert found is not None
    assert found.unit == "dynamo.line"
    assert found.subject.endswith("stale.py:7: z = op(y, x)  (call of closure variable `op`)")
    assert described(found) == (
        "it fails if Dynamo captures this statement, and passes if the capture ends before it "
        f"(dynamo.line): {found.subject}"
    )
    assert lines_at_fault([found]) == [f"{tmp_path / 'stale.py'}:7: z = op(y, x)"]


@pytest.mark.parametrize(
    ("code", "asks"),
    [
        ("if torch.compiler.is_compiling():", True),
        ("y = x if not is_dynamo_compiling() else -x", True),
        ("if torch.compiler.is_exporting() and deep:", True),
        ("y = self.is_compiling * 2", False),
        ("if torch.jit.is_scripting():", False),
    ],
)
def test_a_statement_that_asks_whether_it_is_compiled_may_be_to_blame_itself(
    code: str, asks: bool
) -> None:
    place = SuspectPlace(Decision("dynamo.line", f"train.py:7: {code}", "0123456789", 3, True))
    assert [note for note in notes_on([place]) if "rather than Dynamo" in note] == [OWN_PATH] * asks


@pytest.mark.usefixtures("warm")
def test_no_statement_is_named_if_eager_fails_too(tmp_path: Path) -> None:
    script = tmp_path / "fails.py"
    script.write_text(SCRIPT.format(right=0.0))
    job = Job("compiled", str(script), [], str(tmp_path))
    assert find_line(job, EventLog(tmp_path), 500.0) == ()


REFUSED = """
import torch

def scaled(x, by):
    y = x * by
    return y.sum()

inner = torch.compile(scaled, backend="inductor", fullgraph=True)

def outer(x):
    return torch.vmap(inner, in_dims=(0, None))(x, 2.0)

assert outer(torch.ones(3, 2)).tolist() == [4.0, 4.0, 4.0]
"""


CONSTRAINED = """
import torch

def scores(q, k, masked):
    if masked:
        return q * k
    return q @ k

def weights(q, k, masked):
    return q + k

q = torch.ones(4, 4, 4)
torch._dynamo.mark_dynamic(q, 0)
for function, masked in {calls}:
    torch.compile(function)(q, torch.ones(4, 4, 4), masked)
"""
"""Every statement that combines both tensors makes a size constant that should be dynamic."""


@pytest.mark.usefixtures("warm")
@pytest.mark.parametrize(
    ("text", "function"),
    [(REFUSED, "scaled"), (CONSTRAINED.format(calls="(scores, False), (scores, True)"), "scores")],
    ids=["Dynamo refuses it before its first statement", "several statements of it fail"],
)
def test_a_function_is_named_if_no_single_statement_of_it_fails(
    text: str, function: str, tmp_path: Path
) -> None:
    script = tmp_path / "script.py"
    assert [described(place) for place in places_of(script, text)] == [
        "it fails if Dynamo captures this function, and passes if it does not "
        f"(dynamo.frame.{function}): {script}:4"
    ]


@pytest.mark.usefixtures("warm")
def test_the_first_statement_is_named_if_several_functions_fail_alike(tmp_path: Path) -> None:
    script = tmp_path / "constrained.py"
    text = CONSTRAINED.format(calls="(scores, False), (weights, True)")
    places = places_of(script, text)
    assert [described(place) for place in places] == [
        "it fails if Dynamo captures this statement, and passes if Dynamo captures neither "
        "this nor a later one; other functions fail in the same way (dynamo.line): "
        f"{script}:7: return q @ k"
    ]
    assert lines_at_fault(places) == [], "it is not the only line at fault"


TRANSFORMED = """
import collections
import torch

recent = collections.deque([1, 2, 3], maxlen=3)

def weighted(x):
    y = x.sin()
    recent.appendleft(5)
    z = y * len(recent)
    return z.sum()

x = torch.tensor([0.5])
torch.testing.assert_close(torch.compile(torch.func.{transform})(x), {right})
"""


@pytest.mark.slow
@pytest.mark.usefixtures("warm")
@pytest.mark.parametrize(
    ("transform", "right"),
    [
        pytest.param(
            "grad(weighted)",
            "3 * x.cos()",
            marks=needs_torch("2.12", "a graph cannot be broken inside torch.func.grad"),
        ),
        ("vmap(weighted)", "3 * x.sin()"),
    ],
)
def test_the_statement_is_the_users_where_torch_func_calls_the_function(
    tmp_path: Path, transform: str, right: str
) -> None:
    """Dynamo takes a full deque for one that grows, in a function that torch's code calls."""
    found = statement_of(
        tmp_path / "transformed.py", TRANSFORMED.format(transform=transform, right=right)
    )
    assert found is not None
    assert found.unit == "dynamo.line"
    assert found.subject.split("transformed.py:")[1].startswith("10: z = y * len(recent)")


CALLED = """
import torch

class Switch:
    def __init__(self):
        self.left, self.right = object(), object()
        self.current = self.left

    def step(self, x):
        y = x * 2
        if self.current is self.left:
            self.current = self.right
            return y + 1
        return y * 10

switch = Switch()
step = torch.compile(lambda x: switch.step(x), backend="inductor")
results = [step(torch.tensor(1.0)).item() for _ in range(2)]
assert results == [3.0, 20.0], results
"""


@pytest.mark.usefixtures("warm")
def test_the_statement_is_in_the_called_function_whose_capture_is_wrong(tmp_path: Path) -> None:
    """Dynamo has no guard on the identity of objects that `is` compares (#196173)."""
    found = statement_of(tmp_path / "switch.py", CALLED)
    assert found is not None
    assert found.subject.split("switch.py:")[1].startswith("11: if self.current is self.left:")


IN_MODULES = (
    CALLED.replace("class Switch:", "class Switch(torch.nn.Module):")
    .replace("    def __init__(self):\n", "    def __init__(self):\n        super().__init__()\n")
    .replace("def step", "def forward")
    .replace(
        "switch = Switch()\nstep = torch.compile(lambda x: switch.step(x), ",
        "step = torch.compile(torch.nn.Sequential(torch.nn.Identity(), Switch()), ",
    )
)


@pytest.mark.slow
@pytest.mark.usefixtures("warm")
def test_the_statement_is_in_the_users_module_that_a_module_of_torch_calls(tmp_path: Path) -> None:
    found = statement_of(tmp_path / "modules.py", IN_MODULES)
    assert found is not None
    assert found.subject.split("modules.py:")[1].startswith("12: if self.current is self.left:")


HOOKED = """
import torch

net = torch.nn.Sequential(torch.nn.Identity(), torch.nn.ReLU())
compiled = torch.compile(net)
before = compiled(torch.ones(1)).item()
net[0].register_forward_hook(lambda module, args, result: result * 5)
after = compiled(torch.ones(1)).item()
assert (before, after) == (1.0, 5.0), (before, after)
"""


@pytest.mark.usefixtures("warm")
def test_no_statement_is_named_if_only_dynamos_own_are_captured(tmp_path: Path) -> None:
    """Dynamo has no guard on a hook that is added to a compiled module later."""
    assert places_of(tmp_path / "hooked.py", HOOKED) == ()


FROZEN = """
import torch

class Frozen(torch.autograd.Function):
    @staticmethod
    def forward(x):
        return x.sin()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad):
        return torch.zeros_like(grad)

def loss(x):
    return Frozen.apply(x).sum()

result = torch.compile(torch.func.grad(loss), fullgraph=True)(torch.ones(2))
assert result.tolist() == [0.0, 0.0], result
"""


@pytest.mark.slow
@pytest.mark.usefixtures("warm")
def test_a_statement_of_torch_is_said_to_be_one(tmp_path: Path) -> None:
    """Under torch.func, Dynamo differentiates a Function of which it captures forward only."""
    (found,) = places_of(tmp_path / "frozen.py", FROZEN)
    assert "return eager_transforms.grad_impl(func, " in found.subject
    assert described(found).startswith(
        "it fails if Dynamo captures this statement of torch, and passes if the capture ends before"
    )


WITHOUT_TENSORS = """
import torch
from torch.compiler import is_compiling

def described(names):
    size = len(names)
    return size, is_compiling()

def fn(names):
    total = len(names) + 1
    with torch.no_grad():
        size, compiled = described(names)
    return total + size, compiled

result = torch.compile(fn, fullgraph=True)(["a", "b"])
assert result == (5, False), result
"""


@pytest.mark.usefixtures("warm")
def test_the_statement_is_found_in_a_frame_that_captures_nothing(tmp_path: Path) -> None:
    """Only with fullgraph does Dynamo compile such a frame."""
    found = statement_of(tmp_path / "names.py", WITHOUT_TENSORS)
    assert found is not None
    assert found.subject.split("names.py:")[1].startswith("7: return size, is_compiling()")


UNSUPPORTED = """
import torch

def fn(x, w):
    y = x + 1
    z = y * len(w)
    torch._dynamo.graph_break()
    return z.sin()

torch.compile(fn, fullgraph=True)(torch.ones(3), "abc")
"""


@pytest.mark.usefixtures("warm")
def test_the_statement_is_the_one_that_fullgraph_rejects(tmp_path: Path) -> None:
    found = statement_of(tmp_path / "breaking.py", UNSUPPORTED)
    assert found is not None
    assert found.subject.split("breaking.py:")[1].startswith("7: torch._dynamo.graph_break()")


IN_BLOCKS = """
import torch
from torch.compiler import is_compiling

def fn(x, names):
    for name in names:
        with torch.no_grad():
            x = [x * len(name), x + 10 if is_compiling() else x][-1].clone()
    return x.sum()

torch.testing.assert_close(torch.compile(fn)(torch.ones(3), ["a", "b"]), torch.tensor(3.0))
"""
IN_LOOP = """
import torch
from torch.compiler import is_compiling

def fn(x, names, flipped):
    total = torch.zeros_like(x)
    for k, name in enumerate(flipped if is_compiling() else names):
        total = total + k * len(name) * x
    return total

result = torch.compile(fn)(torch.ones(2), ["a", "bb"], ["bb", "a"])
torch.testing.assert_close(result, torch.full((2,), 2.0))
"""
LONG = """
import torch
from torch.compiler import is_compiling

fn = lambda names: (len(names), str(names[0]), is_compiling(), max(len(names), 7))
assert torch.compile(fn, fullgraph=True)(["a"]) == (1, "a", False, 7)
"""
COMPARED = """
import torch

class Marked:
    def __eq__(self, other):
        return torch.compiler.is_compiling()

def fn(x, a, b):
    found = [str(k) for k in range(2) if k + x.shape[0] > 1 and (a == b)]
    return x + len(found)

torch.testing.assert_close(torch.compile(fn)(torch.ones(3), Marked(), 2), torch.ones(3))
"""


@pytest.mark.usefixtures("warm")
@pytest.mark.parametrize(
    ("text", "places"),
    [
        pytest.param(
            IN_BLOCKS, ["6: for name in names:  (loop, ", "8: is_compiling()"], id="in blocks"
        ),
        pytest.param(
            IN_LOOP, ["7: for k, name in enumerate(", "7: is_compiling()"], id="in a loop"
        ),
        pytest.param(
            LONG,
            ["5: fn = lambda names: (len(names), ", "5: is_compiling()"],
            marks=pytest.mark.slow,
            id="long",
        ),
        pytest.param(
            COMPARED,
            ["6: return torch.compiler.is_comp", "6: torch.compiler.is_compiling()"],
            marks=pytest.mark.slow,
            id="compared",
        ),
    ],
)
def test_the_call_is_found_in_a_block_a_long_expression_and_a_special_method(
    tmp_path: Path, text: str, places: list[str]
) -> None:
    found = places_of(tmp_path / "called.py", text)
    assert [d.unit for d in found] == ["dynamo.line", "dynamo.call"]
    assert lines_at_fault(found) == [found[1].subject]
    for decision, place in zip(found, places, strict=True):
        assert decision.subject.split("called.py:")[1].startswith(place)


CLAMPED = """
import torch
from torch._dynamo.variables.tensor import TensorVariable

original = TensorVariable.call_method

def wrong(self, tx, name, args, kwargs):
    return original(self, tx, "clamp_max" if name == "clamp_min" else name, args, kwargs)

TensorVariable.call_method = wrong

def step(x, calls):
    y = torch.sin(x)
    try:
        y = y * 2
        y = y.clamp_min(0.5)
        y = y.exp()
    finally:
        calls.append(len(calls))
    return y + x

x = torch.linspace(-2, 2, 9)
torch.testing.assert_close(torch.compile(step)(x, []), step(x, []))
"""


@pytest.mark.slow
@pytest.mark.usefixtures("warm")
def test_the_statement_is_found_in_a_try_block(tmp_path: Path) -> None:
    statement, call = places_of(tmp_path / "clamped.py", CLAMPED)
    assert statement.unit == "dynamo.line"
    assert statement.subject.endswith(":16: y = y.clamp_min(0.5)  (call of `y.clamp_min`)")
    assert call.subject.endswith(":16: y.clamp_min(0.5)")


IN_OWN_BLOCK = """
import contextlib
import torch
from torch._dynamo.variables import ConstantVariable
from torch._dynamo.variables.lists import ListVariable

original = ListVariable.call_method

def wrong(self, tx, name, args, kwargs):
    if name == "reverse":
        return ConstantVariable.create(None)
    return original(self, tx, name, args, kwargs)

ListVariable.call_method = wrong

@contextlib.contextmanager
def scaled(box, value):
    box.append(value)
    try:
        yield
    finally:
        box.pop()

def step(x, box):
    order = [0, 1, 2]
    y = torch.sin(x)
    {opened}
        y = y * box[-1]
        order.reverse()
    return y[order]

x = torch.arange(3.0)
torch.testing.assert_close(torch.compile(step)(x, [1.0]), step(x, [1.0]))
"""


@pytest.mark.slow
@pytest.mark.usefixtures("warm")
@pytest.mark.parametrize(
    ("opened", "line"),
    [
        ("with scaled(box, 3.0):", "27: with scaled(box, 3.0):  (lines 27 to 29)"),
        ("with torch.no_grad():", "29: order.reverse()"),
    ],
)
def test_a_block_is_named_where_no_capture_ends_inside_and_a_call_where_one_does(
    tmp_path: Path, opened: str, line: str
) -> None:
    found = places_of(tmp_path / "own_block.py", IN_OWN_BLOCK.replace("{opened}", opened))
    assert [d.unit for d in found] == ["dynamo.line", "dynamo.call"]
    assert lines_at_fault(found) == [f"{tmp_path / 'own_block.py'}:{line}"]
    assert ("cannot continue in eager inside the block" in described(found[1])) is (
        "scaled" in opened
    )
