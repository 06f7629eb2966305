"""Results that nothing uses are dropped, and loops that collect values become expressions."""

from __future__ import annotations

import ast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tcdebug.minifier.cases.script_text import ScriptText
from tcdebug.minifier.reduction.script.functions import DropResults
from tcdebug.minifier.reduction.script.loops import LoopsToExpressions
from tcdebug.minifier.reduction.script.rewriting import SyntaxReduction
from tcdebug.minifier.reduction.script.values import ObservedLiterals

REDUCED = {
    "three results": (
        DropResults(), "def f():\n    return (x, y, z)\na, b, c = f()",
        [
            "def f():\n    return (y, z)\nb, c = f()",
            "def f():\n    return (x, z)\na, c = f()",
            "def f():\n    return (x, y)\na, b = f()",
        ],
    ),
    "two results of several returns and calls": (
        DropResults(),
        "def f(n):\n    if n:\n        return (n, 1)\n    return (0, 2)\na, b = f(3)\nc, d = f(4)",
        [
            "def f(n):\n    if n:\n        return 1\n    return 2\nb = f(3)\nd = f(4)",
            "def f(n):\n    if n:\n        return n\n    return 0\na = f(3)\nc = f(4)",
        ],
    ),
    "results of a compiled function": (
        DropResults(), "def f(x):\n    return (x, 1)\ng = compile(f)\na, b = g(2)",
        [
            "def f(x):\n    return 1\ng = compile(f)\nb = g(2)",
            "def f(x):\n    return x\ng = compile(f)\na = g(2)",
        ],
    ),
    "what a generator yields": (
        DropResults(), "def f():\n    yield (x, 1)\nfor a, b in f():\n    p(a)",
        [
            "def f():\n    yield 1\nfor b in f():\n    p(a)",
            "def f():\n    yield x\nfor a in f():\n    p(a)",
        ],
    ),
    "results of a module": (
        DropResults(),
        "class M:\n\n    def forward(self, x):\n        return (x, 1)\nm = M()\na, b = m(2)",
        [
            "class M:\n\n    def forward(self, x):\n        return 1\nm = M()\nb = m(2)",
            "class M:\n\n    def forward(self, x):\n        return x\nm = M()\na = m(2)",
        ],
    ),
    "one result": (DropResults(), "def f():\n    return x\na, b = f()", []),
    "different results": (
        DropResults(),
        "def f(n):\n    if n:\n        return None\n    return (1, 2)\na, b = f(0)", [],
    ),
    "an unknown number of results": (DropResults(), "def f():\n    return (*x, 1)\na, b = f()", []),
    "a result of a function inside": (
        DropResults(),
        "def f():\n\n    def g():\n        return (1, 2, 3)\n    return g()\na = f()",
        [
            "def f():\n\n    def g():\n        return (2, 3)\n    return g()\na = f()",
            "def f():\n\n    def g():\n        return (1, 3)\n    return g()\na = f()",
            "def f():\n\n    def g():\n        return (1, 2)\n    return g()\na = f()",
        ],
    ),
    "a list": (
        LoopsToExpressions(),
        "def f():\n    r = []\n    n = 2\n    for a, b in g():\n        r.append(a * n)\n"
        "    return r",
        ["def f():\n    n = 2\n    r = [a * n for a, b in g()]\n    return r"],
    ),
    "a sum": (
        LoopsToExpressions(), "t = 0.0\nfor a in x:\n    t += f(a)\nassert t",
        ["t = sum([f(a) for a in x])\nassert t"],
    ),
    "a list that has elements": (
        LoopsToExpressions(), "r = []\nr.append(1)\nfor a in x:\n    r.append(a)", [],
    ),
    "a sum that begins with another number": (
        LoopsToExpressions(), "t = 1\nfor a in x:\n    t += a", [],
    ),
    "a list that its elements use": (
        LoopsToExpressions(), "r = []\nfor a in x:\n    r.append(len(r))", [],
    ),
    "a loop of two statements": (
        LoopsToExpressions(), "r = []\nfor a in x:\n    f(a)\n    r.append(a)", [],
    ),
    "a list of another block": (
        LoopsToExpressions(), "r = []\nif c:\n    for a in x:\n        r.append(a)", [],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("reduction", "text", "results"), REDUCED.values(), ids=REDUCED)
def test_what_collects_values_that_nothing_needs_is_reduced(
    reduction: SyntaxReduction, text: str, results: list[str]
) -> None:
    script = ScriptText(text)
    made = [reduction.apply(script, [edit]) for edit in reduction.edits(script)]
    assert [m and m.text for m in made] == results


def values(text: str) -> dict[str, object]:
    """Run a script, and return its variables that are numbers or lists of numbers."""
    found: dict[str, object] = {}
    exec(compile(ast.parse(text), "<script>", "exec"), found)
    return {name: value for name, value in found.items() if isinstance(value, int | list)}


@given(results=st.lists(st.integers(0, 99), min_size=2, max_size=5), data=st.data())
def test_the_other_results_keep_their_values(results: list[int], data: st.DataObject) -> None:
    names = [f"v{place}" for place in range(len(results))]
    text = f"def f():\n    return {tuple(results)}\n{', '.join(names)} = f()"
    reduction, script = DropResults(), ScriptText(text)
    place = data.draw(st.sampled_from(range(len(results))))
    without = reduction.apply(script, [str(place)])
    assert without is not None
    del names[place], results[place]
    assert values(without.text) == dict(zip(names, results, strict=True))


@given(
    elements=st.lists(st.integers(-9, 9), max_size=5),
    start=st.sampled_from(["[]", "0"]),
    factor=st.integers(-3, 3),
)
def test_a_loop_and_its_expression_have_the_same_value(
    elements: list[int], start: str, factor: int
) -> None:
    body = f"r.append(k * {factor})" if start == "[]" else f"r += k * {factor}"
    text = f"r = {start}\nfor k in {elements}:\n    {body}"
    made = LoopsToExpressions().apply(ScriptText(text), ["0"])
    assert made is not None
    assert "for k in" in made.text and "\n" not in made.text
    assert values(made.text)["r"] == values(text)["r"]


@pytest.mark.parametrize(
    ("test", "written"),
    [
        ("a.n == b.n", ["2 == b.n", "a.n == 2"]),
        ("not a.n != b.n", ["not 2 != b.n", "not a.n != 2"]),
        ("a.n", []),
        ("f(a.n) == b.m", []),
    ],
)
def test_one_side_of_what_is_asserted_becomes_the_literal_of_a_run(
    test: str, written: list[str]
) -> None:
    text = ScriptText(f"assert {test}")
    seen = {"a.n": "2", "b.n": "2"}
    reduction = ObservedLiterals(seen, asserted=True)
    done = [reduction.apply(text, [edit]) for edit in reduction.edits(text)]
    assert [d.text for d in done if d] == [f"assert {w}" for w in written]
    assert ObservedLiterals(seen).edits(text) == []
