"""Functions of inductor that a program replaces: which units are no longer torch's own."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest
import torch
from torch._inductor import decomposition, lowering
from torch._inductor.codegen import cpp

from tcdebug.minifier.targets import replaced
from tcdebug.minifier.targets.replaced import LoadedFunctions

aten = torch.ops.aten

UNITS = {
    "lower.aten.tanh.default": (lowering.lowerings, aten.tanh.default, aten.sigmoid.default),
    "decompose.aten.silu.default": (
        decomposition.decompositions, aten.silu.default, aten.softplus.default,
    ),
}  # fmt: skip
"""A table, and an operator that is given the function of another one, by unit."""


@pytest.mark.parametrize("unit", UNITS)
def test_a_unit_with_a_function_of_torch_for_another_operator_is_replaced(
    unit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, operator, other = UNITS[unit]
    loaded = LoadedFunctions()
    with loaded.recorded():
        assert not loaded.replaced(unit)
        monkeypatch.setitem(table, operator, table[other])
    family = unit.partition(".")[0]
    assert [u for u in (unit, f"{family}.{other}") if loaded.replaced(u)] == [unit]


def test_code_that_is_written_by_another_operations_method_is_replaced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loaded = LoadedFunctions()
    with loaded.recorded():
        monkeypatch.setattr(cpp.CppVecOverrides, "tanh", cpp.CppVecOverrides.sigmoid)
    units = ("lower.aten.tanh.default", "lower.aten.sigmoid.default")
    assert [u for u in units if loaded.replaced(u)] == ["lower.aten.tanh.default"]


@pytest.mark.parametrize("recorded", [True, False])
def test_a_lowering_that_the_program_defines_is_replaced(
    recorded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = LoadedFunctions()
    if recorded:
        with loaded.recorded():
            pass
    monkeypatch.setitem(lowering.lowerings, aten.tanh.default, lambda x: x)
    assert loaded.replaced("lower.aten.tanh.default")


def test_a_replacement_is_seen_if_the_module_is_imported_after_the_start_of_the_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "from torch._inductor import lowering\nlowerings = dict(lowering.lowerings)\n"
    (tmp_path / "late_table.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(replaced.TABLES, "lower", ("late_table", "lowerings"))
    loaded = LoadedFunctions()
    with loaded.recorded():
        table = importlib.import_module("late_table").lowerings
        table[aten.tanh.default] = table[aten.sigmoid.default]
    units = ("lower.aten.tanh.default", "lower.aten.sigmoid.default")
    found = [unit for unit in units if loaded.replaced(unit)]
    del sys.modules["late_table"]
    assert found == ["lower.aten.tanh.default"]


@pytest.mark.parametrize("recorded", [True, False])
def test_torch_itself_replaces_nothing_in_inductor(recorded: bool) -> None:
    assert len(lowering.lowerings) > 500
    loaded = LoadedFunctions()
    if recorded:
        with loaded.recorded():
            pass
    operators = {  # one for each function, and for each method of a class that writes code
        (function, operator.split(".")[:2][-1]): operator
        for operator, function in ((str(op), f) for op, f in lowering.lowerings.items())
    }
    assert [op for op in operators.values() if loaded.replaced(f"lower.{op}")] == []
