"""Everything that tcdebug patches in torch, in the order in which a program reaches it."""

from __future__ import annotations

from tcdebug.compiler.patching import Patch
from tcdebug.minifier.capture import (
    aot_functions,
    cache_bundles,
    capture,
    direct_captures,
    entries,
    exports,
    identity,
    marked_work,
)
from tcdebug.minifier.cases import settings
from tcdebug.minifier.judging.timing import untimed_guards
from tcdebug.minifier.processes import threads
from tcdebug.minifier.processes.devices import sleeping
from tcdebug.minifier.profiling import inductor_profiling
from tcdebug.minifier.reuse import calls
from tcdebug.minifier.sessions import execution, one_rank, undisturbed
from tcdebug.minifier.subjects import protected_files
from tcdebug.minifier.targets import autograd, dynamo, inductor, interception
from tcdebug.minifier.values import inductor as inductor_values

PATCHES: tuple[Patch, ...] = (
    *interception.PATCHES,
    *identity.PATCHES,
    *capture.PATCHES,
    *direct_captures.PATCHES,
    *exports.PATCHES,
    *entries.PATCHES,
    *cache_bundles.PATCHES,
    *aot_functions.PATCHES,
    *marked_work.PATCHES,
    *threads.PATCHES,
    *sleeping.PATCHES,
    *settings.PATCHES,
    *calls.PATCHES,
    *untimed_guards.PATCHES,
    *protected_files.PATCHES,
    *inductor_profiling.PATCHES,
    *one_rank.PATCHES,
    *undisturbed.PATCHES,
    *execution.PATCHES,
    *dynamo.PATCHES,
    *autograd.PATCHES,
    *inductor.PATCHES,
    *inductor_values.PATCHES,
)
