"""The Python program under construction, with methods by which features draw what they need.

All tensors broadcast with each other, so every line is valid for every choice of operands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from hypothesis import strategies as st

from tcdebug.strategies.python.python_program import CodeLine, parsed_lines
from tcdebug.strategies.python.ways import GRAPH_BREAK

T = TypeVar("T")
DEEPEST = 3
"""The maximum depth of nested blocks."""
BREAKS = 9
"""One block in ten has a graph break."""
CONSTANTS = ("2.0", "0.5", "3.0", "-1.0", "0.0", "2", "3")


@dataclass
class ProgramScene:
    """The program that was drawn so far."""

    draw: Callable[[st.SearchStrategy[Any]], Any]
    inner: Callable[[ProgramScene], None]
    """Draws one more line into the block that is open."""
    definitions: dict[str, tuple[CodeLine, ...]] = field(default_factory=dict)
    tensors: list[str] = field(default_factory=lambda: ["x", "y"])
    changes: dict[str, None] = field(default_factory=dict)
    """Statements that may run between calls."""
    modes: dict[str, None] = field(default_factory=dict)
    """Contexts that a call may run in, besides those of torch."""
    between: dict[str, None] = field(default_factory=dict)
    """Statements that may run between forward and backward."""
    feature: str = ""
    """The feature that is being drawn."""
    kept: list[str] = field(default_factory=list)
    """Further values that the program returns."""
    _blocks: list[list[CodeLine]] = field(default_factory=lambda: [[]])
    _counts: dict[str, int] = field(default_factory=dict)
    _globals: dict[str, CodeLine] = field(default_factory=dict)

    def choose(self, options: Sequence[T]) -> T:
        """Return one of several options. The first is the simplest."""
        chosen: T = self.draw(st.sampled_from(options))
        return chosen

    def flag(self) -> bool:
        """Return a boolean. False is the simplest."""
        return bool(self.draw(st.booleans()))

    def integer(self, low: int, high: int) -> int:
        """Return a number in a closed range."""
        chosen: int = self.draw(st.integers(low, high))
        return chosen

    def constant(self) -> str:
        """Return a number, as text."""
        return self.choose(CONSTANTS)

    def tensor(self) -> str:
        """Return the name of a tensor."""
        return self.choose(self.tensors[::-1])

    def name(self, prefix: str) -> str:
        """Return a name that is not taken."""
        count = self._counts[prefix] = self._counts.get(prefix, 0) + 1
        return f"{prefix}{count}"

    def define(self, name: str, text: str, *changes: str) -> None:
        """Add a definition to the module, once, and the statements that may change it."""
        if name not in self.definitions:
            self.definitions[name] = parsed_lines(text, self.feature)
            self.changes.update(dict.fromkeys(changes))

    def write(self, text: str) -> None:
        """Add lines to the block that is open. Declarations of globals go to the top."""
        for line in parsed_lines(text, self.feature):
            if line.text.startswith("global "):
                self._globals[line.text] = line
            else:
                self._blocks[-1].append(line)

    def assign(self, text: str) -> str:
        """Add `name = text`, whose value is a tensor. Return the name."""
        if len(self.tensors) > 2 and self.integer(0, 3) == 3:
            name = self.choose(self.tensors[2:][::-1])
            self.write(f"{name} = {text}")
            return name
        name = self.name("v")
        self.write(f"{name} = {text}")
        self.tensors.append(name)
        return name

    def keep(self, name: str) -> None:
        """Let the program return a value that is not a tensor, too."""
        if self.depth == 0:
            self.kept.append(name)

    @property
    def depth(self) -> int:
        """The number of blocks that are open inside the function."""
        return len(self._blocks) - 1

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Open a block. Tensors that are first assigned in it are not used after it."""
        feature, known = self.feature, len(self.tensors)
        self._blocks.append([])
        try:
            yield
        finally:
            lines = self._blocks.pop()
            del self.tensors[known:]
            self._blocks[-1].append(CodeLine(head, tuple(lines), feature))

    def fill(self) -> None:
        """Draw one or two lines into the open block. The last one changes a known tensor."""
        feature = self.feature
        if self.depth < DEEPEST and self.flag():
            self.inner(self)
        self.feature = feature
        if self.integer(0, BREAKS) == BREAKS:
            self.write(GRAPH_BREAK)
        target = self.choose(self.tensors[2:][::-1] or ["x"])
        self.write(f"{target} = {target} {self.choose(('+', '*', '-'))} {self.constant()}")

    def body(self) -> tuple[CodeLine, ...]:
        """Return the lines of the function."""
        returned = [*dict.fromkeys(self.tensors[2:]), *dict.fromkeys(self.kept)]
        values = ", ".join(returned or ["x"])
        return (*self._globals.values(), *self._blocks[0], CodeLine(f"return [{values}]"))
