"""Data flow from the texts of a compile, which are not executed."""

from __future__ import annotations

import pytest

from tcdebug.reading.dataflow import Box, flow

HALF = "float16, size=[2, 8], stride=[8, 1]"
LOWERED = f"""
s0 = symbol('s0', lower=2)
input_size('n', s0)
input_buffer('x', {HALF})
input_buffer('y', bool, size=[s0], stride=[1])

@pointwise('one', {HALF}, axes={{}}, origin=('a', 'aten.add.Tensor', '/me/m.py', 3, 'f'))
def one(i0, i1):
    return load(float16, 'x', i0, i1)

extern('view', f, args=[ref('one')], out=buffer('view', {HALF}), alias_of='one', origin=('v', 'o'))

@scan('two', bool, size=[s0], stride=[1], axes={{}}, origin=('b', 'aten.cumsum.default'))
def two(i0):
    t0 = load(bool, 'y', at(load(float16, 'view', 0, 1), 8))
    return t0

extern('three', f, args=[ref('two'), [ref('view')]], out=buffer('three', {HALF}), origin=('c', 'g'))

output(ref('three'), None)
"""


def test_views_are_left_out_and_sizes_that_are_symbols_count_nothing() -> None:
    found = flow(LOWERED, LOWERED, {"kernel_0": ["one", "two"]})
    assert found is not None
    assert found.before == [
        Box("x", "input", "", "", [], 32, 0),
        Box("y", "input", "", "", [], 0, 0),
        Box("one", "pointwise", "aten.add.Tensor", "/me/m.py:3", ["x"], 32, 64, "kernel_0"),
        Box("two", "scan", "aten.cumsum.default", "", ["y", "one"], 0, 32, "kernel_0"),
        Box("three", "extern", "g", "", ["two", "one"], 32, 0),
        Box("output", "output", "", "", ["three"], 0, 0),
    ]
    assert found.after[2:4] == [
        Box("kernel_0", "kernel", "2 loops", "", ["x", "y"], 32, 64, "kernel_0"),
        Box("three", "extern", "g", "", ["kernel_0"], 32, 0),
    ]


def test_a_loop_that_was_inlined_belongs_to_the_kernel_of_its_reader() -> None:
    inlined = LOWERED.replace("'view', 0, 1", "'x', 0, 1")
    inlined = inlined[: inlined.index("@pointwise")] + inlined[inlined.index("@scan") :]
    found = flow(LOWERED, inlined.replace(", [ref('view')]", ""), {"kernel_1": ["two"]})
    assert found is not None
    assert [b.group for b in found.before if b.name == "one"] == ["kernel_1"]


def test_text_is_not_executed(capsys: pytest.CaptureFixture[str]) -> None:
    assert flow("print('run')\noutput()", "output()", {}) is not None
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("text", ["", "output(", "load()", "extern()", "@f\ndef g(): pass\n"])
def test_only_loop_ir_is_drawn(text: str) -> None:
    assert flow(text, text, {}) is None
