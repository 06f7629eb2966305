"""The error codes of tcdebug: what each error means and what to do about it.

Codes are never reused. `tcdebug explain TCD012` prints an entry; docs/errors.md lists all of them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

PATTERN = re.compile(r"TCD\d{3}")


@dataclass(frozen=True)
class Code:
    """An error: its stable name, what happened, the possible causes, and what to do about it."""

    name: str
    title: str
    why: str
    todo: str


CODES = (
    Code(
        "TCD001",
        "there is no such run",
        "A run is named by its folder, or by the beginning of its name below `./.tcdebug`. Without "
        "a name, the newest run is used. No run matches, or the run was made in another folder.",
        "`tcdebug logs ls` lists the runs below `./.tcdebug`; `tcdebug run script.py` makes one.",
    ),
    Code(
        "TCD002",
        "no event of the run matches",
        "An event must match all the options that are given (`--stage`, `--graph`, `--unit`, "
        "`--event`, `--line`). Decisions and remarks are debug events: `tcdebug logs` shows them "
        "only with `--all`. Only the embedded compiler makes remarks.",
        "Leave out a filter, or list every event with `tcdebug logs --all RUN`.",
    ),
    Code(
        "TCD003",
        "the unit or stage changed no graph",
        "`--diff` shows a graph before and after a pass or a stage. This one changed nothing or "
        "was switched off, or the run was made with `TCDEBUG_ARTIFACTS=0`, which keeps no graphs.",
        "`tcdebug logs RUN` shows which passes and stages changed a graph.",
    ),
    Code(
        "TCD004",
        "a file or folder cannot be written",
        "The folder does not exist, you have no permission to write to it, or the disk is full.",
        "Choose another place with `-o`.",
    ),
    Code(
        "TCD005",
        "a toggle is invalid, or there is no such unit",
        "A toggle is UNIT, `site:ID`, `UNIT:COUNT` or `only:UNIT`. A unit is a name that "
        "`tcdebug units` lists, or a prefix of such names that ends before a dot.",
        "`tcdebug units` lists the units of the embedded compiler, `tcdebug units --backend "
        "inductor` those of inductor.",
    ),
    Code(
        "TCD006",
        "a source line cannot be parsed",
        "`--line` takes FILE:N: the end of a path, a colon, and a line number, from 1.",
        "`tcdebug logs query --line model.py:12`.",
    ),
    Code(
        "TCD007",
        "the folder has no torch trace",
        "`tcdebug logs import` reads the files that torch writes when `TORCH_TRACE` names a "
        "folder. There is no such file, or none has a complete record.",
        "`TORCH_TRACE=trace python script.py`, then `tcdebug logs import trace`.",
    ),
    Code(
        "TCD008",
        "no repro can be made from this source",
        "`tcdebug repro` writes repros of the graphs of a script. It converts a repro script, or "
        "that of a run, but only to a test or to a standalone repro.",
        "`tcdebug repro script.py`, or `tcdebug repro --as-test REPRO`.",
    ),
    Code(
        "TCD009",
        "the run has no failure to report",
        "A bug report needs a run that found a failure.",
        "`tcdebug bisect script.py` or `tcdebug run --check script.py` finds failures.",
    ),
    Code(
        "TCD010",
        "a package is not installed",
        "Some commands need packages that tcdebug installs only as extras.",
        "Install the extra that the message names, for example `pip install 'tcdebug[fuzz]'`.",
    ),
    Code(
        "TCD011",
        "a fuzzing job cannot start or finish",
        "A setting is invalid, the corpus or the finding cannot be read, or a process that "
        "generates programs failed.",
        "The message names the cause. `tcdebug fuzz run --help` lists the settings.",
    ),
    Code(
        "TCD012",
        "the script compiles no graph",
        "The script never called a compiled function, or every call fell back to eager. Usual "
        "causes are TORCH_COMPILE_DISABLE=1, a frame that Dynamo skips, and a branch that was not "
        "taken.",
        "Call what `torch.compile(f)` returns. Put the script's own arguments after its name.",
    ),
    Code(
        "TCD013",
        "the script ended with an error",
        "The output covers the script up to that point. The error may have nothing to do with "
        "compiling.",
        "Read the log that the message names. `tcdebug bisect script.py` finds out whether the "
        "compiler is at fault, and which of its steps.",
    ),
    Code(
        "TCD014",
        "no repro was written",
        "The script compiles no graph, or none with the number of `--graph`, or it ended too "
        "early.",
        "`tcdebug run script.py` shows its output; `tcdebug explain script.py` its graphs.",
    ),
    Code(
        "TCD015",
        "internal error",
        "An exception in tcdebug was not handled. The traceback is above the message.",
        "Please report it with the traceback and the output of `tcdebug doctor`.",
    ),
    Code(
        "TCD016",
        "there is no such script or error code",
        "`tcdebug explain` takes a script, or an error code such as TCD012.",
        "The message suggests a script or lists the codes. docs/errors.md describes all codes.",
    ),
    Code(
        "TCD017",
        "no such backend is registered",
        "The backend that `--backend` names was not registered when the script first called "
        "torch.compile. The script registers a backend, or an installed package does.",
        "Correct the name. The message suggests similar names.",
    ),
    Code(
        "TCD018",
        "a pass cannot be gated",
        "`tcdebug.gated` takes a name of letters, digits, `_`, `-` and dots. It decorates "
        "something that is called with a graph, which a class is not. A required pass takes no "
        "`otherwise`.",
        "Gate the function, the object, or the method of the class that runs the pass.",
    ),
    Code(
        "TCD019",
        "invalid versions of torch",
        "`--torch` takes a range within one major version, such as 2.11..2.15, or a list of "
        "versions such as 2.12 and 2.13.1. `--python` may name a version in the same way.",
        "`tcdebug since repro.py --torch 2.11..2.15`.",
    ),
    Code(
        "TCD020",
        "the script is not valid Python",
        "Python cannot compile the file, so tcdebug did not run it. It may be a notebook or a "
        "shell script, be written for Python 2, or have another encoding than it declares.",
        "The message names the line. `python -m py_compile script.py` shows the same error.",
    ),
    Code(
        "TCD021",
        "a module that the script imports is not installed",
        "The script imports it before it does anything else. The interpreter that runs tcdebug "
        "also runs the script, and it cannot find the module. tcdebug did not run the script.",
        "Install the module for the interpreter that the message names, or install tcdebug in the "
        "environment in which the script runs.",
    ),
    Code(
        "TCD022",
        "torch cannot be imported",
        "`import torch` fails in a process that has the same interpreter and environment as "
        "tcdebug. The message shows its error. A library may be missing, a package may belong to "
        "another version of torch, or an environment variable that torch reads may be invalid.",
        "`python -c 'import torch'` shows the traceback, `tcdebug doctor` checks the environment.",
    ),
    Code(
        "TCD101",
        "a stage of the compiler failed",
        "The message names the stage, and the unit and the node if they are known. The traceback "
        "shows the original exception above it. The bug is in the embedded compiler, or in a pass "
        "or lowering that your program registered.",
        "`tcdebug bisect script.py` writes a small repro. To continue without the unit, use "
        '`--off UNIT`, or pass the option `on_error="fallback"` to torch.compile.',
    ),
    Code(
        "TCD102",
        "a kernel cannot compute with its inputs",
        "An index is out of range, or an integer is divided by zero: eager raises too. Or the "
        "kernel cannot be launched on the device.",
        "Run the script without torch.compile. If it fails in the same way, its data is at fault. "
        "Otherwise, run `tcdebug bisect script.py`.",
    ),
    Code(
        "TCD103",
        "there is no C++ compiler",
        "CPU kernels are C++. The chosen compiler is not on PATH, or does not run.",
        "`apt install g++`, or set `TCDEBUG_CXX=clang++`. `TCDEBUG_OFF=lower` runs without "
        "kernels. `tcdebug doctor` checks the compiler.",
    ),
    Code(
        "TCD104",
        "a kernel did not build",
        "The C++ compiler rejected the generated code, crashed, or timed out. The error shows its "
        "message and the line.",
        "`tcdebug bisect script.py` names the decision that produced the line.",
    ),
    Code(
        "TCD105",
        "an option of the backend is invalid",
        "A name or value in `options=` of torch.compile, a `mode`, or a `TCDEBUG_*` variable is "
        "not valid.",
        "docs/compiler.md lists the options. The message suggests similar names.",
    ),
)


def find(name: str) -> Code | None:
    """Return the entry of a code, in any case of letters. None if there is no such code."""
    return next((code for code in CODES if code.name == name.upper()), None)
