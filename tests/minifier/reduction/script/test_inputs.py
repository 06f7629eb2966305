"""Inputs of compiled code become constants, and modules of a model their arguments."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tcdebug.minifier.cases.script_text import ScriptText
from tcdebug.minifier.reduction.script.bypassing import BypassModules
from tcdebug.minifier.reduction.script.dropping.inputs import ConstantInputs
from tcdebug.minifier.reduction.script.dropping.statements import UnwrapBlocks
from tcdebug.minifier.reduction.script.observing import instrumented
from tcdebug.minifier.reduction.script.rewriting import SyntaxReduction

LOADED = """
import torch

def batches():
    while True:
        yield (torch.randn(4, 3), torch.ones(2, dtype=torch.int64))

def model(x, labels):
    x = x * 2
    return x
compiled = torch.compile(model)
data = batches()
x, labels = next(data)
assert torch.equal(compiled(x, labels), model(x, labels))
"""


def observed(text: str, folder: Path) -> dict[str, str]:
    """The values that a run of the script observes."""
    script, path = folder / "observed.py", folder / "seen.json"
    script.write_text(str(instrumented(text, path)))
    subprocess.run([sys.executable, script], check=True)
    found: dict[str, str] = json.loads(path.read_text())
    return found


def applied(reduction: SyntaxReduction, text: str, edits: list[str] | None = None) -> str:
    """The script with these edits, or with all."""
    script = ScriptText(ast.unparse(ast.parse(text)))
    done = reduction.apply(script, reduction.edits(script) if edits is None else edits)
    assert done is not None
    return done.text


@pytest.mark.usefixtures("warm")
def test_tensors_given_to_compiled_code_become_constants_without_what_made_them(
    tmp_path: Path,
) -> None:
    seen = observed(LOADED, tmp_path)
    assert seen["argument x"] == "torch.ones(4, 3)"
    assert seen["argument labels"] == "torch.ones(2, dtype=torch.int64)"
    reduction = ConstantInputs(seen)
    left = applied(reduction, LOADED)
    assert "batches" not in left and "data" not in left
    x, labels = "torch.ones(4, 3)", "torch.ones(2, dtype=torch.int64)"
    assert left.endswith(f"assert torch.equal(compiled({x}, {labels}), model({x}, {labels}))"), left
    assert "compiled(torch.ones(4, 3).cumsum(0).cumsum(-1).sin(), labels)" in applied(
        reduction, LOADED, ["0"]
    )


def test_a_comprehension_over_what_made_the_inputs_makes_one_element() -> None:
    text = "f = compile(g)\nl = L()\nassert [f(x) for x, _ in l] == [g(y) for y in z]"
    seen = {"argument x": "torch.ones(2)"}
    left = "f = compile(g)\nassert [f(torch.ones(2))] == [g(y) for y in z]"
    assert applied(ConstantInputs(seen), text) == left


@pytest.mark.usefixtures("warm")
def test_a_tensor_of_several_shapes_or_with_a_gradient_is_no_constant_input(tmp_path: Path) -> None:
    text = """
import torch
f = torch.compile(torch.sin)
for n in (2, 3):
    x = torch.ones(n)
    y = torch.ones(n, n, requires_grad=True)
    z = torch.ones(2, 3).t()
    f(x), f(y), f(z)
"""
    seen = observed(text, tmp_path)
    assert [key for key in seen if key.startswith("argument")] == []


@pytest.mark.parametrize(
    ("body", "left"),
    [
        ("return self.head(self.norm(x))", "return x"),
        ("x = x + self.attend(self.norm(x), mask)", "x = x + x"),
        ("x = self.blocks[0](x)", "x = x"),
        ("for b in self.blocks:\n    x = b(x)", "for b in self.blocks:\n    x = x"),
        (
            "return torch.sin(x) + self.scale.factor(x)",
            "return torch.sin(x) + self.scale.factor(x)",
        ),
        ("return self.make(3)", "return self.make(3)"),
    ],
)
def test_a_module_of_a_model_becomes_its_argument(body: str, left: str) -> None:
    around = "class M:\n\n    def forward(self, x, mask):\n        {}\nM().f(1)"
    indented = around.format(body.replace("\n", "\n        "))
    wanted = ast.unparse(ast.parse(around.format(left.replace("\n", "\n        "))))
    assert applied(BypassModules(), indented) == wanted


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("a = [f(x) for x, _ in loader]", None),
        ("a = [f(1) for x, _ in loader]", "a = [f(1)]"),
        ("a = L(B(c) for _ in range(c.n))", "a = L([B(c)])"),
        ("a = [B(i) for i in range(c.n)]", "a = [B(i) for i in range(1)]"),
        ("a = [f(1) for x in y if x]", None),
    ],
)
def test_a_comprehension_makes_one_element(text: str, left: str | None) -> None:
    assert applied(UnwrapBlocks(loops=True), text) == (left or text)
