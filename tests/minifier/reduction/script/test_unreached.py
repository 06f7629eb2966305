"""What a script does not reach before it raises is removed together."""

from __future__ import annotations

import ast

import pytest

from tcdebug.minifier.cases.script_text import ScriptText
from tcdebug.minifier.reduction.script.dropping.unreached import DropUnreached

TRAINING = """
def model(x):
    y = x.sin()
    z = y.bad()
    w = y.cos()
    print(z)
    return w
for step in range(3):
    x = model(step)
    print(x)
    if step:
        save(x)
def load(path):
    return path
print(load("x"))
"""
LEFT = """
def model(x):
    y = x.sin()
    z = y.bad()
    w = y.cos()
    return w
for step in range(3):
    x = model(step)
"""


def dropped(text: str, *lines: int) -> str:
    """What the candidate with all edits leaves of a script that raised at lines."""
    script = ScriptText(plain(text))
    reduction = DropUnreached(script.key, frozenset(lines))
    done = reduction.apply(script, reduction.edits(script))
    assert done is not None
    return done.text


def plain(text: str) -> str:
    return ast.unparse(ast.parse(text))


def test_what_follows_the_stack_is_dropped_but_what_a_function_returns_stays() -> None:
    lines = plain(TRAINING).splitlines()
    stack = [lines.index(f"    {line}") + 1 for line in ("x = model(step)", "z = y.bad()")]
    assert dropped(TRAINING, *stack) == plain(LEFT)


@pytest.mark.parametrize(
    ("text", "line", "left"),
    [
        ("with a:\n    f()\n    g()\nh()", 2, "with a:\n    f()"),
        ("if a:\n    f()\nelse:\n    g()\nh()", 2, "if a:\n    f()\nelse:\n    g()"),
        ("try:\n    f()\n    g()\nfinally:\n    h()\ni()", 2, "try:\n    f()\nfinally:\n    h()"),
        ("def f():\n    g()\nf()", 2, "def f():\n    g()\nf()"),
        ("class A:\n    def f(self):\n        g()\nA().f()", 4, None),
        ("f()", 1, None),
    ],
)
def test_only_what_runs_after_the_line_is_dropped(text: str, line: int, left: str | None) -> None:
    assert dropped(text, line) == plain(text if left is None else left)


def test_lines_say_nothing_about_another_script() -> None:
    script = ScriptText("f()\ng()")
    reduction = DropUnreached(script.key, frozenset({1}))
    assert reduction.edits(script) == ["1"]
    assert reduction.edits(script.with_text("g()\nh()")) == []
