"""Inputs that are conjugated or negated only when they are read."""

from __future__ import annotations

import torch

from tcdebug.minifier.cases.case import Case, CaseInput
from tcdebug.minifier.subjects.lazy_inputs import resolved


def test_lazy_inputs_are_written_to_memory_as_they_read() -> None:
    numbers = torch.tensor([1 + 2j, 3 - 4j])
    values = {
        "negated": numbers.conj().imag,
        "conjugated": numbers.conj().requires_grad_(),
        "plain": numbers.real,
        "number": 3,
    }
    graph = torch.fx.Graph()
    graph.output(tuple(graph.placeholder(name) for name in values))
    inputs = tuple(CaseInput(name, value) for name, value in values.items())
    case = Case(torch.fx.GraphModule({}, graph), inputs)
    plain, found = resolved(case)
    assert found == ["negated (is_neg)", "conjugated (is_conj)"]
    negated, conjugated, *others = (given.value for given in plain.inputs)
    assert not (negated.is_neg() or conjugated.is_conj())
    assert negated.tolist() == [-2.0, 4.0] and conjugated.requires_grad
    assert conjugated.tolist() == [1 - 2j, 3 + 4j]
    assert others[0] is values["plain"] and resolved(plain)[1] == []
