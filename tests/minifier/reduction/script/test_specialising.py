"""Functions of a script that are written for the constants which they are called with."""

from __future__ import annotations

import ast

import pytest

from tcdebug.minifier.cases.script_text import ScriptText
from tcdebug.minifier.reduction.script.rewriting import SyntaxReduction
from tcdebug.minifier.reduction.script.specialising import (
    ConstantParameters,
    FoldConstants,
    SpecialiseCalls,
)

CONSTANT = ConstantParameters()
FOLD = FoldConstants()
SPECIALISE = SpecialiseCalls()


def results(reduction: SyntaxReduction, text: str) -> list[str]:
    """Return what each edit makes of a script."""
    script = ScriptText(ast.unparse(ast.parse(text)), ())
    edited = [reduction.apply(script, [edit]) for edit in reduction.edits(script)]
    return [made.text for made in edited if made is not None]


def text_of(text: str) -> str:
    return ast.unparse(ast.parse(text))


ONE_VALUE = {
    "in all calls": (
        "def f(x, flag):\n if flag:\n  x = -x\n return x\nf(1, True)\nf(2, flag=True)",
        "def f(x):\n if True:\n  x = -x\n return x\nf(1)\nf(2)",
    ),
    "by default": ("def f(x, n=3):\n return x * n\nf(1)", "def f(x):\n return x * 3\nf(1)"),
    "in a compiled function": (
        "def f(x, mode='sum'):\n return x, mode\ng = torch.compile(f)\ng(1)\nf(1, 'sum')",
        "def f(x):\n return (x, 'sum')\ng = torch.compile(f)\ng(1)\nf(1)",
    ),
    "through an attribute": (
        "def f(x, up=False):\n return x if up else -x\n"
        "class A:\n def g(self):\n  self.h = f\n  return self.h(1, up=True)",
        "def f(x):\n return x if True else -x\nclass A:\n def g(self):\n  self.h = f\n"
        "  return self.h(1)",
    ),
    "in a method that an object runs": (
        "class M(Module):\n def forward(self, x, train=True):\n  return x if train else 0\n"
        "M()(3, train=False)",
        "class M(Module):\n def forward(self, x):\n  return x if False else 0\nM()(3)",
    ),
    "in the creation of objects": (
        "class A:\n def __init__(self, n, bias=True):\n  self.n, self.bias = n, bias\nA(k)",
        "class A:\n def __init__(self, n):\n  self.n, self.bias = (n, True)\nA(k)",
    ),
}


@pytest.mark.parametrize("case", ONE_VALUE)
def test_a_parameter_with_one_constant_value_is_dropped(case: str) -> None:
    before, after = ONE_VALUE[case]
    assert text_of(after) in results(CONSTANT, before)


@pytest.mark.parametrize(
    "text",
    [
        "def f(flag):\n return flag\nf(True)\nf(False)",
        "def f(flag):\n return flag\nf(1)\nf(True)",
        "def f(flag=True):\n return flag\nf()\nf(False)",
        "def f(flag):\n return flag\nf(other)",
        "def f(flag):\n flag = not flag\n return flag\nf(True)",
        "def f(flag):\n return flag\nf(*[True])",
        "def f(flag=False):\n return flag\nf(**options)",
        "def f(flag):\n return flag",
    ],
)
def test_a_parameter_with_other_values_stays(text: str) -> None:
    assert results(CONSTANT, text) == []


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("if True:\n f()\nelse:\n g()", "f()"),
        ("if False:\n f()\nelif x:\n g()", "if x:\n g()"),
        ("y = f() if None else g()", "y = g()"),
        ("y = not False", "y = True"),
        ("if True and x:\n f()", "if x:\n f()"),
        ("if x if 'a' == 'b' else z:\n f()", "if x if False else z:\n f()"),
        ("y = 'train' if False or ok else 2", "y = 'train' if ok else 2"),
        ("y = 0 or '' or ok", "y = '' or ok"),
        ("y = 1 is not None", "y = True"),
    ],
)
def test_what_constants_decide_is_what_runs(before: str, after: str) -> None:
    assert results(FOLD, before) == [text_of(after)]


def test_a_comparison_that_is_asserted_stays() -> None:
    assert results(FOLD, "assert 1.0 == 2.0") == []


def test_a_method_with_a_flag_is_another_expression_for_each_call() -> None:
    before = """
class Experiment:

    def run(self, compile=True):
        fn = torch.compile(self.net) if compile else self.net
        out = fn(self.x)
        return out
table[f] = (e.run(), e.run(False))
"""
    after = "class Experiment:\n pass\ntable[f] = (torch.compile(e.net)(e.x), e.net(e.x))"
    assert results(SPECIALISE, before) == [text_of(after)]


@pytest.mark.parametrize(
    ("function", "call", "value"),
    [
        ("if loud:\n  print(x)\n return x + 1", "f(a, loud=False)", "a + 1"),
        ("x = x + 1\n x = x * 2\n return x", "f(a())", "(a() + 1) * 2"),
        ("y = x.size\n return y + y", "f(a)", "a.size + a.size"),
        ("if loud:\n  return -x\n return x", "f(a, True)", "-a"),
    ],
)
def test_assignments_become_one_expression(function: str, call: str, value: str) -> None:
    before = f"def f(x, loud=False):\n {function}\nr = {call}\ns = [{call} for a in b]"
    assert results(SPECIALISE, before) == [text_of(f"r = {value}\ns = [{value} for a in b]")]


@pytest.mark.parametrize(
    "body",
    [
        "y = g(x)\n return y + y",
        "y = g(x)\n z = y + 1\n return z * y",
        "x.append(1)\n return x",
        "for y in x:\n  g(y)\n return 0",
        "y, z = x\n return y",
        "x = x + 1",
        "return x + x",
    ],
)
def test_a_function_that_is_more_than_an_expression_stays(body: str) -> None:
    assert results(SPECIALISE, f"def f(x):\n {body}\nf(h())") == []


def test_a_function_that_is_not_only_called_stays() -> None:
    assert results(SPECIALISE, "def f(x):\n y = x\n return y\nf(1)\ntorch.compile(f)(2)") == []
