"""Whether a statement reads outside state after a call, so that the read may be at fault."""

from __future__ import annotations

from pathlib import Path

import pytest

from tcdebug.minifier.trace.statements import reads_after

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
    ],
)
def test_a_read_behind_a_call_is_told_from_one_before_it(
    tmp_path: Path, statement: str, call: str, following: str, reads: bool
) -> None:
    file = tmp_path / "amplifier.py"
    file.write_text(PROGRAM.format(statement=statement))
    shown = [f"{file}:8: {text}" for text in (call, following) if text]
    assert reads_after(shown[0], "".join(shown[1:])) is reads
