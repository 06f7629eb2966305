"""The strategy for Python programs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from hypothesis import strategies as st

from tcdebug.strategies.python.autograd import AUTOGRAD, HIGHER_ORDER
from tcdebug.strategies.python.branches import BRANCHES
from tcdebug.strategies.python.call_steps import draw_steps
from tcdebug.strategies.python.feature import Feature
from tcdebug.strategies.python.iteration import ITERATION
from tcdebug.strategies.python.objects import OBJECTS
from tcdebug.strategies.python.optimizers import OPTIMIZERS
from tcdebug.strategies.python.python_program import PythonProgram
from tcdebug.strategies.python.scene import ProgramScene
from tcdebug.strategies.python.special_methods import SPECIAL_METHODS
from tcdebug.strategies.python.standard_library import STANDARD_LIBRARY
from tcdebug.strategies.python.state import STATE
from tcdebug.strategies.python.tensors import TENSORS
from tcdebug.strategies.python.ways import DRAWN

TABLES = (
    (6, TENSORS), (6, BRANCHES), (6, STATE), (6, OBJECTS), (4, ITERATION), (6, AUTOGRAD),
    (6, STANDARD_LIBRARY), (6, SPECIAL_METHODS), (1, HIGHER_ORDER), (1, OPTIMIZERS),
)  # fmt: skip
"""The features, and how often each table is used. The last two cost a second a program."""
LENGTHS = (1, 1, 1, 2, 2, 2, 3, 3, 4, 6)
"""The numbers of features at the top level of the function, as often as they are drawn.

A program of one feature costs a tenth of one of six, and most causes need one or two.
"""
DYNAMIC = (None, None, None, True, False)

Draw = Callable[[st.SearchStrategy[Any]], Any]


@cache
def _turns() -> tuple[tuple[Feature, ...], ...]:
    return tuple(table for times, table in TABLES for _ in range(times))


@st.composite
def python_programs(draw: Draw, ways: Sequence[str] = DRAWN) -> PythonProgram:
    """A program and its calls, compiled in one of several ways."""
    scene = ProgramScene(draw, draw_feature)
    for _ in range(scene.choose(LENGTHS)):
        draw_feature(scene)
    steps = draw_steps(scene)
    definitions = tuple(line for lines in scene.definitions.values() for line in lines)
    dynamic, way = scene.choose(DYNAMIC), scene.choose(ways)
    return PythonProgram(definitions, scene.body(), steps, dynamic, way)


def draw_feature(scene: ProgramScene) -> None:
    """Draw a feature into the block that is open."""
    outer = scene.feature
    feature = scene.choose(scene.choose(_turns()))
    scene.feature = feature.name
    feature.draw(scene)
    scene.feature = outer


def feature_names() -> tuple[str, ...]:
    """The names of all features."""
    return tuple(feature.name for _, table in TABLES for feature in table)
