"""The features of Python and torch that programs are made of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tcdebug.strategies.python.scene import ProgramScene


@dataclass(frozen=True)
class Feature:
    """A feature. `draw` adds its lines, definitions and changes to a scene."""

    name: str
    draw: Callable[[ProgramScene], None]


def written(name: str, template: str, definition: str = "", *changes: str) -> Feature:
    """Return a feature that assigns an expression of tensors `{a}`, `{b}` and a constant `{c}`.

    `changes` are statements that may run between calls.
    """

    def draw(scene: ProgramScene) -> None:
        if definition:
            scene.define(name, definition, *changes)
        a, b, c = scene.tensor(), scene.tensor(), scene.constant()
        scene.assign(template.format(a=a, b=b, c=c))

    return Feature(name, draw)


def statements(
    name: str, template: str, definition: str = "", *changes: str,
    modes: Sequence[str] = (), between: Sequence[str] = (),
) -> Feature:  # fmt: skip
    """Return a feature that writes several lines. `{t}` is a new tensor, which they assign.

    Operands, definition and changes are those of `written`. `modes` are contexts in which the
    program may be called. `between` are statements that may run between forward and backward.
    """

    def draw(scene: ProgramScene) -> None:
        if definition:
            scene.define(name, definition, *changes)
        scene.modes.update(dict.fromkeys(modes))
        scene.between.update(dict.fromkeys(between))
        a, b, c = scene.tensor(), scene.tensor(), scene.constant()
        target = scene.name("v") if "{t}" in template else ""
        scene.write(template.format(a=a, b=b, c=c, t=target))
        if target:
            scene.tensors.append(target)

    return Feature(name, draw)
