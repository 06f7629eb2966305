"""Copies of tensors that are views of one another, and Python that creates them again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import fx

from tcdebug.minifier.cases.case import Case, CaseInput, clone_values
from tcdebug.minifier.cases.lineage import Relation, SharedDtypes, leaves, lineage
from tcdebug.minifier.cases.outcome import Kind, Outcome
from tcdebug.minifier.repros.repro import Repro, write


def plain() -> torch.Tensor:
    return torch.arange(24.0).reshape(4, 6).clone()


def leaf() -> torch.Tensor:
    return plain().requires_grad_()


def computed() -> torch.Tensor:
    return leaf() * 2


def complex_numbers() -> torch.Tensor:
    return torch.complex(torch.arange(12.0), torch.ones(12)).reshape(4, 3).clone()


def without_gradients(x: torch.Tensor) -> list[torch.Tensor]:
    with torch.no_grad():
        return [x, x[1:]]


def in_inference(x: torch.Tensor) -> list[torch.Tensor]:
    with torch.inference_mode():
        return [x, x[1:]]


def of_inference() -> list[torch.Tensor]:
    with torch.inference_mode():
        x = torch.ones(4, 6)
        return [x, x[1:], torch.ones(2)]


def of(x: torch.Tensor, *takes: Callable[[torch.Tensor], torch.Tensor]) -> list[torch.Tensor]:
    return [x, *(take(x) for take in takes)]


GIVEN: dict[str, Callable[[], list[torch.Tensor]]] = {
    "a slice of another": lambda: of(plain(), lambda x: x[1:]),
    "slices of one that is not given": lambda: of(plain(), lambda x: x[:2], lambda x: x[1:])[1:],
    "a slice of a leaf": lambda: of(leaf(), lambda x: x[1:]),
    "no leaf": lambda: [computed()],
    "views of no leaf": lambda: of(computed(), lambda x: x[1:], lambda x: x.t()),
    "a view of no leaf that is not given": lambda: [computed().t()],
    "pieces of a split": lambda: list(leaf().split(2)),
    "made under no_grad": lambda: without_gradients(leaf()),
    "made in inference mode": lambda: in_inference(leaf()),
    "inference tensors": of_inference,
    "one tensor twice": lambda: [plain()] * 2,
    "detached": lambda: of(leaf(), lambda x: x.detach()),
    "a view of what was detached": lambda: of(leaf(), lambda x: x.detach()[1:]),
    "by .data": lambda: of(leaf(), lambda x: x.data),
    "a part of a parameter": lambda: of(torch.nn.Parameter(plain()), lambda x: x[1:]),
    "a view of a parameter": lambda: [torch.nn.Parameter(plain()).t()],
    "a parameter of a part": lambda: of(plain(), lambda x: torch.nn.Parameter(x[1:])),
    "bits": lambda: of(plain(), lambda x: x.view(torch.int32)),
    "parts of bits": lambda: of(plain(), lambda x: x.view(torch.int8)[:, 3:]),
    "pairs of numbers as one": lambda: of(plain(), lambda x: x.view(torch.float64)),
    "real and imaginary parts": lambda: of(complex_numbers(), torch.view_as_real),
    "conjugates": lambda: of(
        complex_numbers(), lambda x: x.imag, lambda x: x.conj(), lambda x: x.conj().imag
    ),
    "complex numbers of pairs": lambda: of(
        torch.arange(8.0).reshape(4, 2).clone().requires_grad_(), torch.view_as_complex
    ),
    "expanded": lambda: of(plain(), lambda x: x.expand(3, 4, 6)),
    "windows": lambda: of(plain(), lambda x: x.as_strided((3, 3), (1, 1), 2)),
    "a view that is a leaf": lambda: of(plain(), lambda x: x[1:].requires_grad_()),
    "nothing of nothing": lambda: of(torch.ones(0, 3), lambda x: x[:, 1:]),
    "a number": lambda: [torch.tensor(1.0, requires_grad=True) * 2],
}


@pytest.mark.parametrize("name", GIVEN)
def test_copies_come_from_one_another_as_their_originals_do(name: str) -> None:
    values = GIVEN[name]()
    text = lineage(values).text()
    for mode in (torch.enable_grad, torch.no_grad, torch.inference_mode):
        with mode():
            copies = clone_values(values)
        assert lineage(copies).text() == text, mode.__name__
        assert [type(c) for c in copies] == [type(v) for v in values]
        assert [c.stride() for c in copies] == [v.stride() for v in values]
        assert all(torch.equal(c, v) for c, v in zip(copies, values, strict=True))
        if not values[0].is_inference():
            assert all(c is not v for c, v in zip(copies, values, strict=True))


@pytest.mark.parametrize("store", [False, True])
@pytest.mark.parametrize("name", GIVEN)
def test_a_script_makes_inputs_from_one_another(name: str, store: bool, tmp_path: Path) -> None:
    values = GIVEN[name]()
    made = script_inputs(values, tmp_path / "repro.py", store=store)
    assert without_parameters(made) == without_parameters(values)
    assert all(torch.equal(m, v) for m, v in zip(made, values, strict=True))


def script_inputs(values: list[torch.Tensor], path: Path, *, store: bool) -> list[Any]:
    """Return what the function `inputs` of a repro script returns for these values."""
    graph = fx.Graph()
    given = [graph.placeholder(f"x{k}") for k in range(len(values))]
    graph.output(tuple(graph.call_method("detach", (g,)) for g in given))
    inputs = tuple(CaseInput(f"x{k}", v) for k, v in enumerate(values))
    case = Case(fx.GraphModule(torch.nn.Module(), graph), inputs)
    write(case, Repro(Outcome(Kind.OK), {"backend": "eager"}), path, store=store)
    namespace: dict[str, Any] = {"__name__": "repro", "__file__": str(path)}
    exec(compile(path.read_text(), str(path), "exec"), namespace)
    made: list[Any] = namespace["inputs"]()
    return made


def without_parameters(values: list[torch.Tensor]) -> list[str]:
    """Return their lineage with parameters as plain leaves: Dynamo does not distinguish them."""
    found = lineage(values)
    return replace(found, members=tuple(replace(m, parameter=False) for m in found.members)).text()


def test_relations_of_two_tensors_are_distinguished() -> None:
    x = plain()
    hows = [
        lineage([x, y]).members[-1].how
        for y in (x[1:], x.detach(), x.data, x.clone(), torch.nn.Parameter(x))
    ]
    assert hows == [
        Relation.VIEW, Relation.DETACHED, Relation.STORAGE, Relation.MEMORY, Relation.DETACHED
    ]  # fmt: skip
    assert x._version == 0, "looking changes nothing"


def test_a_detached_copy_shares_the_version_counter_of_its_source() -> None:
    x = plain()
    first, detached, data = clone_values([x, x.detach(), x.data])
    detached.add_(1)
    assert first._version == detached._version == data._version + 1


def test_equal_layouts_with_different_lineages_are_different_cases() -> None:
    graph = fx.Graph()
    a, b = graph.placeholder("a"), graph.placeholder("b")
    graph.output((graph.call_function(torch.add, (a, b)),))
    module = fx.GraphModule(torch.nn.Module(), graph)
    x = plain()
    seconds = [x.view(4, 6), x.detach(), x.data, x.clone(), x]
    keys = {Case(module, (CaseInput("a", x), CaseInput("b", s))).key for s in seconds}
    assert len(keys) == 5


def test_gradients_are_computed_for_the_leaves_behind_inputs() -> None:
    base, whole, part = clone_values(of(computed(), lambda x: x[1:], lambda x: x.t()))
    (root,) = leaves([base, whole, part])
    assert root.is_leaf
    part.sum().backward()
    assert root.grad is not None
    assert root.grad.tolist() == torch.ones(4, 6).tolist()


def test_memory_of_two_dtypes_is_not_widened() -> None:
    x = plain()
    with pytest.raises(SharedDtypes):
        clone_values([x, x.view(torch.int32)], lambda memory: memory.double())
