"""What stands for something else in a script is written out."""

from __future__ import annotations

import ast

import pytest

from tcdebug.minifier.cases.script_text import ScriptText
from tcdebug.minifier.reduction.script.rewriting import SyntaxReduction
from tcdebug.minifier.reduction.script.unfolding import (
    InlineContexts,
    ReplaceAliases,
    WriteOutComprehensions,
)

UNFOLDED = {
    "alias": (ReplaceAliases(), "y = x\nf(y, y)", ["f(x, x)"]),
    "two aliases": (ReplaceAliases(), "a = f\nb = a\nb(b)", ["b = f\nb(b)", "a = f\na(a)"]),
    "rebound": (ReplaceAliases(), "y = x\nf(y)\ny = z\nf(y)", []),
    "alias beside a parameter of the same name": (
        ReplaceAliases(), "def run(y):\n    g(y)\ny = x\nf(y)", ["def run(y):\n    g(y)\nf(x)"],
    ),
    "a function that names one": (
        ReplaceAliases(), "def build():\n    return Net\nf(build(), build())", ["f(Net, Net)"],
    ),
    "a function that is passed on": (
        ReplaceAliases(), "def build():\n    return Net\nf(build, build())", [],
    ),
    "a function with parameters": (
        ReplaceAliases(), "def build(x=1):\n    return Net\nf(build())", [],
    ),
    "dictionary": (
        WriteOutComprehensions(), "r = {k: run(k, 1) for k in ('a', 'b')}",
        ["r = {'a': run('a', 1), 'b': run('b', 1)}"],
    ),
    "list": (
        WriteOutComprehensions(), "r = [f(k) + k for k in [x, y]]", ["r = [f(x) + x, f(y) + y]"],
    ),
    "generator": (WriteOutComprehensions(), "r = sum(k for k in (1, 2))", ["r = sum([1, 2])"]),
    "condition": (WriteOutComprehensions(), "r = [k for k in (1, 2) if k]", []),
    "no display": (WriteOutComprehensions(), "r = [k for k in range(n)]", []),
    "starred": (
        WriteOutComprehensions(), "f(*[x], *(y,), *z)", ["f(x, *(y,), *z)", "f(*[x], y, *z)"],
    ),
    "set": (WriteOutComprehensions(), "r = {f(k) for k in (1, 2)}", ["r = {f(1), f(2)}"]),
    "pairs": (
        WriteOutComprehensions(), "r = [f(k, v) for k, v in [(1, x), (2, y)]]",
        ["r = [f(1, x), f(2, y)]"],
    ),
    "pairs that are made": (WriteOutComprehensions(), "r = [k for k, v in [x, (2, y)]]", []),
    "range": (WriteOutComprehensions(), "r = [f() for _ in range(2)]", ["r = [f(), f()]"]),
    "many": (WriteOutComprehensions(), "r = [f() for _ in range(9)]", []),
    "two loops": (WriteOutComprehensions(), "r = [k for k in (1, 2) for j in (3, 4)]", []),
    "context": (
        InlineContexts(),
        "@contextmanager\ndef seeded(n):\n    seed(n)\n    yield\nwith seeded(3):\n    g()",
        ["@contextmanager\ndef seeded(n):\n    seed(n)\n    yield\nn = 3\nseed(n)\ng()"],
    ),
    "context with an end": (
        InlineContexts(),
        "@manager\ndef m():\n    try:\n        yield 1\n    finally:\n        end()\n"
        "with m() as v:\n    g(v)",
        [
            "@manager\ndef m():\n    try:\n        yield 1\n    finally:\n        end()\n"
            "v = 1\ng(v)\nend()",
        ],
    ),
    "context that yields twice": (
        InlineContexts(),
        "@manager\ndef m():\n    if a:\n        yield\n    yield\nwith m():\n    g()", [],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("reduction", "text", "results"), UNFOLDED.values(), ids=UNFOLDED)
def test_what_stands_for_something_else_is_written_out(
    reduction: SyntaxReduction, text: str, results: list[str]
) -> None:
    given = ScriptText(ast.unparse(ast.parse(text)))
    made = [reduction.apply(given, [edit]) for edit in reduction.edits(given)]
    assert [m and m.text for m in made] == results
