"""Every error of tcdebug that has a code: what it means, and what to do. Codes are never reused.

`tcdebug explain TCD012` prints an entry; docs/errors.md is made of all of them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

PATTERN = re.compile(r"TCD\d{3}")


@dataclass(frozen=True)
class Code:
    """An error: its stable name, what happened, why it may, what to do about it."""

    name: str
    title: str
    why: str
    todo: str


CODES = (
    Code(
        "TCD001",
        "there is no such run",
        "A run is named by its folder, by the beginning of its name below `./.tcdebug`, or is the "
        "newest one. None of those fits, or this is another folder than the one it was made in.",
        "`tcdebug logs ls` lists the runs below `./.tcdebug`; `tcdebug run script.py` makes one.",
    ),
    Code(
        "TCD002",
        "no event of the run fits",
        "`--stage`, `--graph`, `--unit`, `--event` and `--line` all have to fit. Decisions and "
        "remarks are debug events, which `tcdebug logs` shows with `--all`. Remarks are made by "
        "the embedded compiler only.",
        "Leave out one of the filters, or look at what there is with `tcdebug logs --all RUN`.",
    ),
    Code(
        "TCD003",
        "the unit or stage changed no graph",
        "`--diff` shows a graph before and after a pass or a stage. It found nothing, was off, or "
        "the run was made with `TCDEBUG_ARTIFACTS=0`, which keeps no texts.",
        "`tcdebug logs RUN` shows what changed a graph.",
    ),
    Code(
        "TCD004",
        "a file or folder cannot be written",
        "It is in a folder that is not there, or that you may not write to, or the disk is full.",
        "Give `-o` a place that can be written to.",
    ),
    Code(
        "TCD005",
        "a toggle or unit cannot be read",
        "A toggle is UNIT, `site:ID`, `UNIT:COUNT` or `only:UNIT`; a unit is a name of "
        "`tcdebug units`, or the beginning of several up to a dot.",
        "`tcdebug units` lists the units of the embedded compiler, `tcdebug units --backend "
        "inductor` those of inductor.",
    ),
    Code(
        "TCD006",
        "a line of a program cannot be read",
        "`--line` takes FILE:N: the end of a path, a colon, and the number of a line from 1.",
        "`tcdebug logs query --line model.py:12`.",
    ),
    Code(
        "TCD007",
        "there is no trace of torch in a folder",
        "`tcdebug logs import` reads what torch writes when `TORCH_TRACE` names a folder. There is "
        "no such file, or none with a whole record.",
        "`TORCH_TRACE=trace python script.py`, then `tcdebug logs import trace`.",
    ),
    Code(
        "TCD008",
        "what was named is no script that a repro can be made of",
        "`tcdebug repro` takes a script; of a repro script it only makes tests, and of a run too.",
        "`tcdebug repro script.py`, or `tcdebug repro --as-test REPRO`.",
    ),
    Code(
        "TCD009",
        "the run has no failure to report",
        "A report of a bug is made of a run that found one.",
        "`tcdebug bisect script.py` or `tcdebug run --check script.py` finds failures.",
    ),
    Code(
        "TCD010",
        "a package is not installed",
        "Some commands need more than tcdebug itself; each such package is an extra.",
        "The message names the extra: `pip install 'tcdebug[fuzz]'`.",
    ),
    Code(
        "TCD011",
        "a fuzzing job cannot be begun or ended",
        "A setting of the job, a corpus or a finding that was named cannot be used, or a process "
        "that draws programs ended by a fault of its own.",
        "The message says which; `tcdebug fuzz run --help` has the settings.",
    ),
    Code(
        "TCD012",
        "the script compiles no graph",
        "Nothing that torch.compile returned was called, or every call fell back to eager: "
        "TORCH_COMPILE_DISABLE=1, a frame that Dynamo skips, or a path that was not taken.",
        "Call what `torch.compile(f)` returns, with the arguments of the script behind its name.",
    ),
    Code(
        "TCD013",
        "the script ended with an error",
        "What is told of it is up to that point. The end may have nothing to do with compiling.",
        "Read the log that the message names; `tcdebug bisect script.py` finds out whether it is "
        "the compiler, and which step of it.",
    ),
    Code(
        "TCD014",
        "no repro was written",
        "The script compiles no graph, or not the one that `--graph` asks for, or ended before it.",
        "`tcdebug run script.py` shows its output; `tcdebug explain script.py` its graphs.",
    ),
    Code(
        "TCD015",
        "a fault of tcdebug",
        "An error that no case of tcdebug foresees, with its traceback above the message.",
        "Please report it with the traceback and the output of `tcdebug doctor`.",
    ),
    Code(
        "TCD016",
        "no script and no code",
        "`tcdebug explain` takes a script, or a code such as TCD012.",
        "Check the path; docs/errors.md has all codes.",
    ),
    Code(
        "TCD101",
        "a stage of the compiler failed",
        "The message names the stage, and as far as they are known the unit and the node. The "
        "cause is chained above it. It is a fault of the embedded compiler, or of a pass or "
        "lowering of yours.",
        '`tcdebug bisect script.py` writes a small repro; `--off UNIT`, or `on_error="fallback"` '
        "as an option of torch.compile, goes on without the unit.",
    ),
    Code(
        "TCD102",
        "a kernel met data that it cannot compute with",
        "An index out of range or an integer division by zero, at which eager raises too, or a "
        "device that the kernel cannot be launched on.",
        "Run the script without torch.compile: if it fails in the same way, the data is at fault. "
        "If not, `tcdebug bisect script.py`.",
    ),
    Code(
        "TCD103",
        "there is no C++ compiler",
        "Kernels for the CPU are C++. The compiler that was asked for is not on PATH, or does not "
        "run.",
        "`apt install g++`, or `TCDEBUG_CXX=clang++`; `TCDEBUG_OFF=lower` runs without kernels. "
        "`tcdebug doctor` checks.",
    ),
    Code(
        "TCD104",
        "a kernel did not build",
        "The C++ compiler refused what was generated, crashed, or did not end in time. Its message "
        "and the line are in the error.",
        "`tcdebug bisect script.py` names the decision that made the line.",
    ),
    Code(
        "TCD105",
        "an option of the backend cannot be used",
        "A name or value in `options=` of torch.compile, a `mode`, or a variable `TCDEBUG_*`.",
        "docs/compiler.md lists them; the message names those that are near.",
    ),
)


def find(name: str) -> Code | None:
    """The entry of a code; None where there is none."""
    return next((code for code in CODES if code.name == name.upper()), None)
