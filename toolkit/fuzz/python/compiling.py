"""Compiles the program of one run in the way that was drawn, and counts the graphs."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from tcdebug.fuzz.python.counting import CountingBackend
from tcdebug.fuzz.python.execution import CallState, Execution
from tcdebug.minifier.cases.operators.python_text import run_text
from tcdebug.strategies.python.python_program import PythonProgram
from tcdebug.strategies.python.ways import EAGER_DRAWS, OF_INDUCTOR, WAYS, CompilingWay


@dataclass(frozen=True)
class Compilation:
    """How a program is compiled and run. Its files are written beside `path`."""

    program: PythonProgram
    path: Path
    backend: Callable[..., Any]
    notify: Callable[[str], None] = field(default=lambda phase: None)
    runs: list[CountingBackend] = field(default_factory=list)
    """The backends of the compiled runs in this process."""

    @property
    def way(self) -> CompilingWay:
        """The way to compile."""
        return WAYS[self.program.way]

    def eager(self, *, plain: bool = False) -> list[CallState]:
        """Return the states of a run in eager, in the wrapper of the way unless `plain`."""

        def wrapping(program: Callable[..., Any]) -> Callable[..., Any]:
            if plain or not self.way.wrapper:
                return program
            return self._made(self.way.wrapper, "wrapped", program)

        return Execution(self.program, self.path, wrapping, only_result=self.way.exports).states()

    def compiled(self, *, fresh: bool = False) -> list[CallState]:
        """Return the states of a compiled run. If `fresh`, each call captures everything again."""
        torch.compiler.reset()
        counting = CountingBackend(self.backend)
        self.runs.append(counting)
        definition = self.way.wrapper + self.way.definition

        def compiling(program: Callable[..., Any]) -> Callable[..., Any]:
            options = {"backend": counting, "dynamic": self.program.dynamic}
            return self._made(definition, "compiled", program, **options)

        run = Execution(
            self.program, self.path, compiling, lambda: counting.compiles,
            torch.compiler.reset if fresh else _nothing, self.notify, self.way.exports,
        )  # fmt: skip
        try:
            with contextlib.ExitStack() as settings:
                for module, name, value in (*self.way.settings, (OF_INDUCTOR, EAGER_DRAWS, True)):
                    settings.enter_context(import_module(module).patch({name: value}))
                return run.states()
        finally:
            torch.compiler.reset()

    def _made(
        self, definition: str, name: str, program: Callable[..., Any], **options: Any
    ) -> Callable[..., Any]:
        """Return what the function of a way makes of a program.

        A wrapper has the globals of the program, as in a script: Dynamo reaches the globals of
        another module in another way.
        """
        names: dict[str, Any] = {"torch": torch}
        if self.way.wrapper:
            names = program.__globals__
        before = set(names)
        run_text(definition, str(self.path.with_name("way.py")), names)
        made: Callable[..., Any] = names[name](program, **options)
        if self.way.wrapper:
            for added in set(names) - before:
                del names[added]
        return made


def _nothing() -> None:
    pass
