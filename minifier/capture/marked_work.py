"""Marks what a script itself calls and what may not end: gated passes, exports and tracers.

Dynamo's captures have marks of their own. A function that compiles has none, because a compile may
take minutes.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.gate.gated import SUPERVISION, PassRun
from tcdebug.compiler.patching import Patch
from tcdebug.minifier.capture.capture_marks import CaptureMarks
from tcdebug.minifier.capture.direct_captures import MAKE_FX, TRACERS
from tcdebug.minifier.capture.exports import DRAFT_EXPORT, EXPORT
from tcdebug.minifier.capture.saved_code import patched_when_imported
from tcdebug.minifier.processes.callers import called_by_user

JOINT_EXPORT = Patch(
    "torch._functorch.aot_autograd",
    "aot_export_joint_with_descriptors",
    "a joint graph whose capture does not end uses up the budget",
)
PATCHES = (JOINT_EXPORT,)
Make = Callable[[Callable[..., Any]], Callable[..., Any]]


@contextlib.contextmanager
def work_marked(marks: CaptureMarks, log: EventLog) -> Iterator[None]:
    """Mark the gated passes, exports and tracers of the program in this block."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(SUPERVISION.stand_by(_MarkedPasses(marks)))
        for patch in (EXPORT, DRAFT_EXPORT, JOINT_EXPORT, *TRACERS):
            # make_fx returns what traces
            make = _marking_result if patch is MAKE_FX else _marking
            patched_when_imported(stack, patch, make(marks, str(patch)), log)
        yield


@dataclass(frozen=True)
class _MarkedPasses:
    """Supervises passes: it allows all of them."""

    marks: CaptureMarks

    def around(self, run: PassRun) -> contextlib.AbstractContextManager[None]:
        """Mark the process while the pass runs."""
        return self.marks.lasting(run.unit)


def _marking(marks: CaptureMarks, name: str) -> Make:
    """Return what marks the calls of a function by the program."""

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def marked(*args: Any, **options: Any) -> Any:
            if not called_by_user(sys._getframe(1)):
                return original(*args, **options)
            with marks.lasting(name):
                return original(*args, **options)

        return marked

    return make


def _marking_result(marks: CaptureMarks, name: str) -> Make:
    """Return what marks the calls of the function that a function returns to the program."""

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def made(*args: Any, **options: Any) -> Any:
            result = original(*args, **options)
            return _marking(marks, name)(result) if called_by_user(sys._getframe(1)) else result

        return made

    return make
