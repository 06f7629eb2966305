"""A generated Python program: definitions, a function, and a sequence of calls, all as text."""

from __future__ import annotations

import ast
import itertools
import textwrap
from collections.abc import Iterator, Sequence
from hashlib import blake2b

import msgspec

from tcdebug.strategies.devices import CPU, Options
from tcdebug.strategies.python.ways import COMPILE

INDENT = "    "
PARAMETERS = "x, y, n=1"
CALL = "program(x, y, n)"
PLAIN = "multiply"
"""The feature that takes the place of those that a failure does not need."""
RESULT = "result"
"""The variable of the module that has what the last call returned."""


class CodeLine(msgspec.Struct, frozen=True):
    """A logical line of Python with the lines of its block. `feature` names what drew it."""

    text: str
    body: tuple[CodeLine, ...] = ()
    feature: str = ""

    def rendered(self, depth: int = 0) -> str:
        """Return the text of the line and its block at an indentation."""
        lines = [textwrap.indent(self.text, INDENT * depth)]
        inner = [line.rendered(depth + 1) for line in self.body]
        if self.text.endswith(":") and not inner:
            inner = [INDENT * (depth + 1) + "pass"]
        return "\n".join(lines + inner)

    @property
    def features(self) -> Iterator[str]:
        """The features of the line and its block."""
        yield self.feature
        for line in self.body:
            yield from line.features


class CallStep(msgspec.Struct, frozen=True):
    """A call. `lines` run before it at the top level of the module, `mode` is a context around it.

    The module variable `result` is what the call returned. After a call with `backward`, the sum
    of its results is differentiated; `between` runs before that.
    """

    lines: tuple[str, ...] = ()
    mode: str = ""
    backward: bool = False
    between: tuple[str, ...] = ()
    thread: bool = False
    """Whether a second thread makes the call, which all such calls share."""


class PythonProgram(msgspec.Struct, frozen=True, tag="python"):
    """A program and its calls. `dynamic` is that of torch.compile. `way` is a name in WAYS."""

    definitions: tuple[CodeLine, ...]
    body: tuple[CodeLine, ...]
    steps: tuple[CallStep, ...]
    dynamic: bool | None = None
    way: str = COMPILE

    @property
    def device(self) -> str:
        """Where the program runs."""
        return CPU

    @property
    def options(self) -> Options:
        """Options of torch.compile: none are drawn."""
        return ()

    @property
    def ops(self) -> tuple[str, ...]:
        """The way, unless it is the usual one, and the names of the features in order."""
        found = (f for line in (*self.definitions, *self.body) for f in line.features)
        way = () if self.way == COMPILE else (self.way,)
        return (*way, *dict.fromkeys(f for f in found if f))

    @property
    def causes(self) -> tuple[str, ...]:
        """The same without the multiplication that only makes sure that there is a graph."""
        return tuple(op for op in self.ops if op != PLAIN) or self.ops

    @property
    def pairs(self) -> frozenset[str]:
        """Pairs of features in consecutive lines."""
        lines = [f for line in self.body for f in line.features if f]
        pairs = itertools.pairwise(lines)
        return frozenset(f"{one}>{next_}" for one, next_ in pairs if one != next_)

    @property
    def key(self) -> str:
        """Equal programs have equal keys, in every process."""
        return blake2b(repr(self).encode(), digest_size=8).hexdigest()

    def source(self) -> str:
        """Return the module: the definitions and the function `program`."""
        parts = ["import torch", *(line.rendered() for line in self.definitions)]
        function = CodeLine(f"def program({PARAMETERS}):", self.body)
        return "\n".join((*parts, function.rendered())) + "\n"

    def without(self, feature: str) -> PythonProgram:
        """Return the program without a feature's lines, compiled in the usual way."""
        return msgspec.structs.replace(self, body=_others(self.body, feature), way=COMPILE)

    def smaller(self) -> Iterator[PythonProgram]:
        """Yield programs with one part less: a call, a line, a block around lines, a change."""
        for steps in _fewer_steps(self.steps):
            yield msgspec.structs.replace(self, steps=steps)
        for definitions in _fewer_lines(self.definitions):
            yield msgspec.structs.replace(self, definitions=definitions)
        for body in _fewer_lines(self.body):
            yield msgspec.structs.replace(self, body=body)
        for feature in dict.fromkeys(line.feature for line in self.body):
            if feature not in ("", PLAIN):
                yield msgspec.structs.replace(self, body=_plain(self.body, feature))
        if self.dynamic is not None:
            yield msgspec.structs.replace(self, dynamic=None)
        if self.way != COMPILE:
            yield msgspec.structs.replace(self, way=COMPILE)


def parsed_lines(text: str, feature: str = "") -> tuple[CodeLine, ...]:
    """Return Python text as a tree of lines, by indentation."""
    rows = [row for row in textwrap.dedent(text).splitlines() if row.strip()]
    lines, _ = _block(rows, 0, 0, feature)
    return lines


def _block(
    rows: Sequence[str], start: int, depth: int, feature: str
) -> tuple[tuple[CodeLine, ...], int]:
    made: list[CodeLine] = []
    place = start
    while place < len(rows):
        row = rows[place]
        margin = len(row) - len(row.lstrip())
        if margin < depth:
            break
        inner: tuple[CodeLine, ...] = ()
        following = rows[place + 1] if place + 1 < len(rows) else ""
        deeper = len(following) - len(following.lstrip()) if following else 0
        place += 1
        if deeper > margin:
            inner, place = _block(rows, place, deeper, feature)
        made.append(CodeLine(row.strip(), inner, feature))
    return tuple(made), place


def _fewer_steps(steps: tuple[CallStep, ...]) -> Iterator[tuple[CallStep, ...]]:
    for place, step in enumerate(steps):
        before, after = steps[:place], steps[place + 1 :]
        if len(steps) > 1:
            yield (*before, *after)
            if after and step.lines:  # without the call, but with its changes
                merged = msgspec.structs.replace(after[0], lines=(*step.lines, *after[0].lines))
                yield (*before, merged, *after[1:])
        for k in range(len(step.lines)):
            fewer = (*step.lines[:k], *step.lines[k + 1 :])
            yield (*before, msgspec.structs.replace(step, lines=fewer), *after)
        if step.mode:
            yield (*before, msgspec.structs.replace(step, mode=""), *after)
        if step.thread:
            yield (*before, msgspec.structs.replace(step, thread=False), *after)
        if step.between:
            yield (*before, msgspec.structs.replace(step, between=()), *after)
        if step.backward:
            yield (*before, msgspec.structs.replace(step, backward=False, between=()), *after)


def _fewer_lines(lines: tuple[CodeLine, ...]) -> Iterator[tuple[CodeLine, ...]]:
    for place, line in enumerate(lines):
        before, after = lines[:place], lines[place + 1 :]
        yield (*before, *after)
        if line.body:
            if not line.text.startswith(("def ", "class ")):
                yield (*before, *line.body, *after)
            for body in _fewer_lines(line.body):
                yield (*before, msgspec.structs.replace(line, body=body), *after)


def _plain(lines: tuple[CodeLine, ...], feature: str) -> tuple[CodeLine, ...]:
    """Return the lines with a multiplication in place of each tensor that a feature computes."""
    texts = [line.rendered() for line in lines if line.feature == feature]
    try:
        names = [name for name in names_assigned(texts) if name.startswith("v")]
    except SyntaxError:  # an `else` whose `if` is gone
        names = []
    made = tuple(CodeLine(f"{name} = y * 2.0", (), PLAIN) for name in names)
    place = next(k for k, line in enumerate(lines) if line.feature == feature)
    before, after = (
        tuple(line for line in part if line.feature != feature)
        for part in (lines[:place], lines[place:])
    )
    return (*before, *made, *after)


def _others(lines: tuple[CodeLine, ...], feature: str) -> tuple[CodeLine, ...]:
    return tuple(
        CodeLine(line.text, _others(line.body, feature), line.feature)
        for line in lines
        if line.feature != feature
    )


def names_assigned(lines: Sequence[str]) -> list[str]:
    """Return the names that these lines rebind."""
    found: dict[str, None] = {}
    for node in ast.walk(ast.parse("\n".join(lines))):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store | ast.Del):
            found[node.id] = None
    return list(found)
