"""The strategy for Python programs."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from hypothesis import strategies as st

from tcdebug.strategies.python.autograd import AUTOGRAD
from tcdebug.strategies.python.branches import BRANCHES
from tcdebug.strategies.python.call_steps import draw_steps
from tcdebug.strategies.python.feature import Feature
from tcdebug.strategies.python.iteration import ITERATION
from tcdebug.strategies.python.objects import OBJECTS
from tcdebug.strategies.python.python_program import PythonProgram
from tcdebug.strategies.python.scene import ProgramScene
from tcdebug.strategies.python.state import STATE
from tcdebug.strategies.python.tensors import TENSORS

TABLES = (
    (3, TENSORS), (3, BRANCHES), (3, STATE), (3, OBJECTS), (2, ITERATION), (3, AUTOGRAD),
)  # fmt: skip
"""The features, and how often each table is used."""
LONGEST = 6
"""The maximum number of features at the top level of the function."""
DYNAMIC = (None, None, None, True, False)

Draw = Callable[[st.SearchStrategy[Any]], Any]


@cache
def _turns() -> tuple[tuple[Feature, ...], ...]:
    return tuple(table for times, table in TABLES for _ in range(times))


@st.composite
def python_programs(draw: Draw, longest: int = LONGEST) -> PythonProgram:
    """A program with up to this many features, and its calls."""
    scene = ProgramScene(draw, draw_feature)
    for _ in range(scene.integer(1, longest)):
        draw_feature(scene)
    steps = draw_steps(scene)
    definitions = tuple(line for lines in scene.definitions.values() for line in lines)
    return PythonProgram(definitions, scene.body(), steps, scene.choose(DYNAMIC))


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
