"""Dependencies between groups while they are merged, compared with a search from scratch."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tcdebug.compiler.ir.parse import parse_graph
from tcdebug.compiler.schedule.fusing.dependencies import Dependencies


@st.composite
def programs(draw: st.DrawFn) -> list[list[int]]:
    """For each node, the earlier nodes that it reads. The first one reads the input."""
    size = draw(st.integers(2, 9))
    return [draw(st.lists(st.integers(0, k - 1), unique=True)) if k else [] for k in range(size)]


def graph_of(program: list[list[int]]) -> str:
    """The program as loop IR."""
    lines = ["input_buffer('x', float32, size=[4], stride=[1])"]
    for k, read in enumerate(program):
        buffer = "float32, size=[4], stride=[1], axes={'i0': 4}"
        head = f"@pointwise('n{k}', {buffer}, origin=('n', 'n'))"
        loads = [f"    t{r} = load(float32, 'n{r}', i0)" for r in read]
        names = ["load(float32, 'x', i0)", *(f"t{r}" for r in read)]
        total = names[0]
        for name in names[1:]:
            total = f"add({total}, {name})"
        lines.append("\n".join([head, f"def n{k}(i0):", *loads, f"    return {total}"]))
    lines.append(f"output(ref('n{len(program) - 1}'))")
    return "\n\n".join(lines) + "\n"


def reached(program: list[list[int]], group: list[int]) -> set[tuple[int, int]]:
    """All pairs (first, second) of groups such that the second depends on the first."""
    edges = {(group[r], group[k]) for k, read in enumerate(program) for r in read}
    found = {(a, b) for a, b in edges if a != b}
    while more := {(a, d) for a, b in found for c, d in found if b == c} - found:
        found |= more
    return found


@given(programs(), st.data())
def test_dependencies_after_a_merge_are_those_of_a_search_from_scratch(
    program: list[list[int]], data: st.DataObject
) -> None:
    dependencies = Dependencies(parse_graph(graph_of(program)))
    group = list(range(len(program)))
    while True:
        now = reached(program, group)
        keys = sorted(set(group))
        for first in keys:
            for second in keys:
                if first != second:
                    assert dependencies.reaches(first, second) == ((first, second) in now)
        legal = [(a, b) for a in keys for b in keys if a < b and not dependencies.blocked(a, b)]
        if not legal:
            return
        first, second = data.draw(st.sampled_from(legal))
        dependencies.merge(first, second)
        group = [first if g == second else g for g in group]
        assert not any(a == b for a, b in reached(program, group))
