"""The strategy for Python programs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from hypothesis import strategies as st

from tcdebug.strategies.python.call_steps import draw_steps
from tcdebug.strategies.python.feature import Feature
from tcdebug.strategies.python.features.autograd import AUTOGRAD, HIGHER_ORDER
from tcdebug.strategies.python.features.branches import BRANCHES
from tcdebug.strategies.python.features.iteration import ITERATION
from tcdebug.strategies.python.features.language import LANGUAGE
from tcdebug.strategies.python.features.modules import MODULES
from tcdebug.strategies.python.features.objects import OBJECTS
from tcdebug.strategies.python.features.optimizers import OPTIMIZERS
from tcdebug.strategies.python.features.regions import FURTHER_HIGHER_ORDER, REGIONS
from tcdebug.strategies.python.features.special_methods import SPECIAL_METHODS
from tcdebug.strategies.python.features.standard_library import STANDARD_LIBRARY
from tcdebug.strategies.python.features.state import STATE
from tcdebug.strategies.python.features.surroundings import SURROUNDINGS
from tcdebug.strategies.python.features.tensors import TENSORS
from tcdebug.strategies.python.features.training import TRAINING
from tcdebug.strategies.python.features.transforms import TRANSFORMS
from tcdebug.strategies.python.python_program import CodeLine, PythonProgram
from tcdebug.strategies.python.scene import ProgramScene
from tcdebug.strategies.python.ways import DRAWN, GRAPH_BREAK, GRAPH_BREAKS, WAYS

TABLES = (
    (6, TENSORS), (6, BRANCHES), (6, STATE), (6, OBJECTS), (4, ITERATION), (6, AUTOGRAD),
    (6, STANDARD_LIBRARY), (6, SPECIAL_METHODS), (6, SURROUNDINGS), (6, LANGUAGE), (4, TRANSFORMS),
    (4, MODULES), (4, REGIONS), (1, HIGHER_ORDER), (1, FURTHER_HIGHER_ORDER), (1, OPTIMIZERS),
    (1, TRAINING),
)  # fmt: skip
"""How often each table is used. A program with a feature of the last four takes a second."""
LENGTHS = (1, 1, 1, 2, 2, 2, 3, 3, 4, 6)
"""How many features a function has at its top level. Repeated numbers are drawn more often.

A program of one feature costs a tenth of one of six, and most faults need one or two.
"""
BREAK = CodeLine(GRAPH_BREAK, (), GRAPH_BREAKS)
NO_STATEMENT_BEFORE = ("else:", "elif ", "except", "finally:", "case ", "global ", "nonlocal ")
"""The beginnings of lines before which there can be no statement."""
DYNAMIC = (None, None, None, True, False)

Draw = Callable[[st.SearchStrategy[Any]], Any]


@cache
def _turns() -> tuple[tuple[Feature, ...], ...]:
    return tuple(table for times, table in TABLES for _ in range(times))


@st.composite
def python_programs(draw: Draw, ways: Sequence[str] = DRAWN) -> PythonProgram:
    """Return a program and its calls, compiled in one of several ways."""
    scene = ProgramScene(draw, draw_feature)
    way = scene.choose(ways)
    if WAYS[way].stateless:
        scene.inner = draw_stateless
    for _ in range(scene.choose(LENGTHS)):
        scene.inner(scene)
    steps = draw_steps(scene)
    definitions = tuple(line for lines in scene.definitions.values() for line in lines)
    body = scene.body()
    if way == GRAPH_BREAKS:
        body = _with_breaks(scene, body)
    return PythonProgram(definitions, body, steps, scene.choose(DYNAMIC), way)


def _with_breaks(scene: ProgramScene, lines: tuple[CodeLine, ...]) -> tuple[CodeLine, ...]:
    """Return the lines with graph breaks before some of them, also inside blocks."""
    made: list[CodeLine] = []
    for line in lines:
        if scene.flag() and not line.text.startswith(NO_STATEMENT_BEFORE):
            made.append(BREAK)
        if line.body and not line.text.startswith(("def ", "class ", "match ")):
            line = CodeLine(line.text, _with_breaks(scene, line.body), line.feature)
        made.append(line)
    return tuple(made)


def draw_feature(scene: ProgramScene) -> None:
    """Draw a feature into the block that is open."""
    _draw_from(scene, _turns())


def draw_stateless(scene: ProgramScene) -> None:
    """Draw a feature that reads and writes no state beside the arguments."""
    _draw_from(scene, (TENSORS, TENSORS, BRANCHES))


def _draw_from(scene: ProgramScene, tables: Sequence[Sequence[Feature]]) -> None:
    outer = scene.feature
    feature = scene.choose(scene.choose(tables))
    scene.feature = feature.name
    feature.draw(scene)
    scene.feature = outer


def feature_names() -> tuple[str, ...]:
    """Return the names of all features."""
    return tuple(feature.name for _, table in TABLES for feature in table)
