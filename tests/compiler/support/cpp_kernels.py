"""The C++ kernels of a function, and which of their loops g++ vectorizes."""

from __future__ import annotations

import platform
import re
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

from judge import assert_as_eager, compiled
from stages import capture

from tcdebug.compiler.codegen.cpp.source import CppSource, prelude, write_cpp
from tcdebug.compiler.configuration.options import Options
from tcdebug.compiler.devices.cpu import CppCodegen
from tcdebug.compiler.gate.gate import Gate
from tcdebug.compiler.gate.toggles import Toggles
from tcdebug.compiler.runtime.toolchain import find

VECTORIZED = re.compile(
    r"kernel\.cpp:(\d+):\d+: optimized: (?:loop vectorized|Loop \d+ distributed: split to 0 loops)"
)
"""A note about a loop that is vectorized, or that becomes a call of `memcpy` or `memset`."""


def kernels(function: Callable[..., Any], *inputs: Any, off: tuple[str, ...] = ()) -> str:
    """The C++ of a function, without the prelude."""
    (schedule,) = capture(function, *inputs, interpreted="nothing").schedules
    gate = Gate(Toggles.parse(off))
    return _text(write_cpp(schedule.kernels(), schedule.graph.buffers(), gate))


def kernels_as_eager(
    function: Callable[..., Any], inputs: Sequence[Any], *, exact: bool = False
) -> str:
    """The C++ of a function whose results are checked to be those of eager."""
    sources: list[CppSource] = []
    write = CppCodegen.write

    def kept(self: CppCodegen, *given: Any) -> CppSource:
        sources.append(write(self, *given))
        return sources[-1]

    with mock.patch.object(CppCodegen, "write", kept):
        assert_as_eager(compiled(function), function, inputs, exact=exact)
    (source,) = sources
    return _text(source)


def _text(source: CppSource) -> str:
    return "\n".join(call.source for call in source.calls.values())


def built(text: str, folder: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    """Compile C++ after the prelude, as kernels are compiled, to kernel.so in a folder.

    With the flag -S, that is the assembler code.
    """
    toolchain = find(Options().compiler)
    source = folder / "kernel.cpp"
    source.write_text(prelude() + text)
    command = [*toolchain.command(source, folder / "kernel.so"), *flags]
    return subprocess.run(command, capture_output=True, text=True, check=True)


def scalar_loops(text: str, folder: Path, processor: str = "icelake-server") -> list[str]:
    """The loops marked `omp simd` that g++ neither vectorizes nor makes a copy of memory.

    On x86, this is for processors with masks (AVX-512) by default, whatever the processor of the
    test: without masks, the ends of rows are computed one by one.

    g++ names the loop or the first line of its body. It also names the pragma of a reduction, but
    that is only the loop that clears the vector of partial results.
    """
    target = [f"-march={processor}"] if platform.machine() == "x86_64" else []
    notes = built(text, folder, "-fopt-info-vec-loop-optimized", "-S", *target).stderr
    vectorized = {int(line) for line in VECTORIZED.findall(notes)}
    lines = (prelude() + text).splitlines()
    return [
        lines[number]
        for number, line in enumerate(lines, 1)
        if line.startswith("#pragma omp simd")
        and not vectorized & {number + 1, number + 2, number + 3}
    ]
