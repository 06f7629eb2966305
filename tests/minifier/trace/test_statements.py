"""What lies between a call and the next place where a capture can end, and may be at fault."""

from __future__ import annotations

from pathlib import Path

import pytest

from tcdebug.minifier.trace.statements import (
    block_at,
    block_opened_by,
    chooses_exception,
    hides_statements,
    reads_after,
)

PROGRAM = """
import torch
SCALE = 2.0

class Amplifier:
    def forward(self, x, other):
        global SEEN
        {statement}
        return y
"""


@pytest.mark.parametrize(
    ("statement", "call", "following", "reads"),
    [
        ("return torch.tanh(x) * self.knob.gain", "torch.tanh(x)", "", True),
        ("return self.knob.gain * torch.tanh(x)", "torch.tanh(x)", "", False),
        ("y = torch.tanh(x) * SCALE", "torch.tanh(x)", "", True),
        ("y = torch.tanh(x) * other", "torch.tanh(x)", "", False),
        ("y = torch.tanh(x).to(torch.float64)", "torch.tanh(x)", "", False),
        ("y = f(x) + self.shift + g(y)", "f(x)", "g(y)", True),
        ("y = f(x) + g(self.shift)", "g(self.shift)", "", False),
        ("y = f(x) + max(y, 3) + self.shift", "f(x)", "max(y, 3)", False),
        ("for k in f(x): y += self.shift", "f(x)", "", False),
        ("y = [self.shift * k for k in f(x)]", "f(x)", "", True),
        ("if f(x) and self.on: pass", "f(x)", "", True),
        ("SEEN += x.shape[0]", "x.shape[0]", "", True),
        ("SEEN = f(x)", "f(x)", "", True),
        ("SEEN = f(g(x))", "g(x)", "f(g(x))", False),
        ("y += x.shape[0]", "x.shape[0]", "", False),
        ("SEEN = lambda k: (f(k), max(len(k), 7))", "f(k)", "", False),
        ("SEEN = lambda k: (f(k), max(len(k), 7))", "f(k)", "len(k)", False),
        ("SEEN = lambda k: f(k) + other", "f(k)", "", True),
        ("y = lambda k: (lambda n: f(n) + k)(k)", "f(n)", "", True),
    ],
)
def test_a_read_behind_a_call_is_told_from_one_before_it(
    tmp_path: Path, statement: str, call: str, following: str, reads: bool
) -> None:
    file = tmp_path / "amplifier.py"
    file.write_text(PROGRAM.format(statement=statement))
    shown = [f"{file}:8: {text}" for text in (call, following) if text]
    assert reads_after(shown[0], "".join(shown[1:])) is reads


BLOCKS = """
def model(x, box, self):
    with scaled(box, 3.0):
        y = x * box[-1]
        order.reverse()
    for k in steps(box):
        f(k)
        y = y + k
        z = self.gain
        with box:
            g(k)
        h(k)
    with torch.no_grad():
        order.reverse()
    return y
"""


@pytest.mark.parametrize(
    ("call", "following", "block"),
    [
        ("3: scaled(box, 3.0)", "6: for k in steps(box):", "3: with scaled(box, 3.0):|3 to 5"),
        ("3: scaled(box, 3.0)", "", "3: with scaled(box, 3.0):|3 to 5"),
        ("6: steps(box)", "13: with torch.no_grad():", "6: for k in steps(box):|6 to 12"),
        ("6: steps(box)", "7: f(k)", None),
        ("13: torch.no_grad()", "14: order.reverse()", None),
        ("14: order.reverse()", "15: return y", None),
    ],
)
def test_a_call_stands_for_the_block_that_it_opens_if_capture_cannot_end_inside(
    tmp_path: Path, call: str, following: str, block: str | None
) -> None:
    file = tmp_path / "blocks.py"
    file.write_text(BLOCKS)
    found = block_opened_by(f"{file}:{call}", f"{file}:{following}" if following else "")
    text, _, lines = (block or "").partition("|")
    assert (str(found) if found else None) == (f"{file}:{text}  (lines {lines})" if block else None)
    assert str(block_at(f"{file}:6: for")) == f"{file}:6: for k in steps(box):  (lines 6 to 12)"
    assert block_at(f"{file}:7: f(k)") is None


@pytest.mark.parametrize(
    ("call", "following", "hides"),
    [
        ("7: f(k)", "11: g(k)", True),
        ("7: f(k)", "9: self.gain", False),
        ("11: g(k)", "12: h(k)", False),
        ("7: f(k)", "12: h(k)", True),
        ("12: h(k)", "13: with torch.no_grad():", False),
    ],
)
def test_a_statement_behind_a_call_may_be_at_fault_if_no_capture_ends_before_it(
    tmp_path: Path, call: str, following: str, hides: bool
) -> None:
    file = tmp_path / "blocks.py"
    file.write_text(BLOCKS)
    whole = f"{file}:6: for k in steps(box):"
    assert hides_statements(f"{file}:{call}", f"{file}:{following}", whole) is hides


CHOICES = """
import torch
raised = f()
if raised: raise raised
assert (
    torch.compiler.is_compiling()
), "compile me"
raise ValueError(
    describe(raised),
)
assertion(raised)
"""


@pytest.mark.parametrize(
    ("line", "chosen"),
    [(3, False), (4, True), (5, True), (6, True), (7, True), (8, True), (9, True), (11, False)],
)
def test_only_raise_and_assert_statements_choose_their_exception(
    tmp_path: Path, line: int, chosen: bool
) -> None:
    file = tmp_path / "choices.py"
    file.write_text(CHOICES)
    text = CHOICES.splitlines()[line - 1].strip()
    assert chooses_exception(str(file), line, text) is chosen


@pytest.mark.parametrize(
    ("shown", "chosen"),
    [
        ("raise", True), ("assert(x)", True), ("raise ValueError(", True), ("raised = f()", False),
        ("assertion(x)", False), ("assert_close(a, b)", False), ("", False),
    ],
)  # fmt: skip
def test_the_printed_line_decides_if_the_file_has_changed(
    tmp_path: Path, shown: str, chosen: bool
) -> None:
    file = tmp_path / "changed.py"
    file.write_text("x = 1\n")
    assert chooses_exception(str(file), 1, shown) is chosen
