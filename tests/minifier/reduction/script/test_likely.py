"""What a failure most likely needs is tried last, and a name needs one of the statements it has."""

from __future__ import annotations

import ast
from pathlib import Path

from tcdebug.minifier.cases.script_text import ScriptText
from tcdebug.minifier.reduction.script.dropping.likely import texts_of
from tcdebug.minifier.reduction.script.dropping.statements import KeepFirst, KeepNeeded

SCRIPT = """
import torch

class Log:
    def __init__(self):
        self.size = 1

    def add(self, x):
        self.values.append(x)
        print(x)

class Block:
    def __init__(self):
        self.size = 3

def forward(x, log):
    x = x * log.size
    x = Block()(x)
    log.add(x)
    return x

log = Log()
step = torch.compile(forward)
y = step(1, log)
y = y + 2
assert log.values
"""


def test_the_statement_at_fault_and_what_it_calls_are_tried_last(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    places = ["train.py:19: log.add(x)", "other.py:2: import", "train.py:?: x"]
    texts = texts_of(places, str(path))
    assert texts == {"log.add(x)", "self.values.append(x)", "print(x)"}
    script = ScriptText(ast.unparse(ast.parse(SCRIPT)))
    edits = KeepFirst(texts).edits(script)
    kept = KeepFirst(texts).apply(script, edits[:-4])
    assert kept is not None
    assert kept.text.splitlines()[-2:] == ["step = torch.compile(forward)", "y = step(1, log)"]
    assert "self.values.append(x)" in kept.text and "Block" not in kept.text


def test_a_name_that_is_bound_again_needs_its_first_statement_only() -> None:
    script = ScriptText("x = 1\ny = 2\nx = y\nassert x")
    assert KeepNeeded().apply(script, ["0", "1", "2"]) == script
    kept = KeepFirst(frozenset()).apply(script, ["0", "1", "2"])
    assert kept is not None and kept.text == "x = 1\nassert x"
    second = KeepFirst(frozenset()).apply(script, ["0", "1"])
    assert second is not None and second.text == "y = 2\nx = y\nassert x"
    given = ScriptText("def f(x):\n    x = 2\n    return x")
    kept = KeepFirst(frozenset()).apply(given, ["1"])
    assert kept is not None and kept.text == "def f(x):\n    return x"


def test_an_attribute_needs_the_classes_that_are_used_only() -> None:
    classes = "class A:\n\n    def __init__(self):\n        self.n = 1\n"
    script = ScriptText(f"{classes}{classes.replace('A', 'B')}a = A()\nassert a.n")
    kept = KeepNeeded().apply(script, [str(n) for n in range(7)])
    assert kept is not None and kept.text == f"{classes}a = A()\nassert a.n"
