"""Interpreters that have imported what the repros of a backend import."""

from __future__ import annotations

from tcdebug.minifier.cases.criteria import ONE_THREAD, Criteria
from tcdebug.minifier.processes.interpreters import Interpreters
from tcdebug.minifier.processes.job import NVML
from tcdebug.minifier.repros.repro import WITHOUT_CACHES
from tcdebug.minifier.repros.verify import repro_environment
from tcdebug.minifier.targets.backends import EMBEDDED, INDUCTOR, Backend

IMPORTS = {
    EMBEDDED: ("torch", "torch._dynamo", "tcdebug.compiler.backend"),
    INDUCTOR: ("torch", "torch._dynamo", "torch._inductor.compile_fx"),
}
"""The modules that an interpreter imports before it runs a repro, by backend."""
PICK = "tcdebug.minifier.targets.inductor.vector_instructions:pick"
"""Called in an interpreter for inductor before it runs repros, if it then takes no time."""


def repro_interpreters(backend: Backend, wanted: Criteria) -> Interpreters | None:
    """Return interpreters that run repros of a backend, once a graph fails.

    They import torch without the settings of the user's environment. A repro that sets some needs
    an interpreter of its own; see `verify_switched`.
    """
    if wanted.check or backend.name not in IMPORTS:
        return None
    without_caches = WITHOUT_CACHES if backend.name == INDUCTOR else {}
    threads = ONE_THREAD if wanted.one_thread else {}
    variables = {**repro_environment(), **without_caches, **threads, NVML: "1"}
    return Interpreters(variables, (*IMPORTS[backend.name], *_calls(backend)))


def _calls(backend: Backend) -> tuple[str, ...]:
    """Return what an interpreter calls after its imports, so that no repro has to."""
    if backend.name != INDUCTOR:
        return ()
    from tcdebug.minifier.targets.inductor import vector_instructions  # noqa: PLC0415 - start-up time

    return (PICK,) if vector_instructions.all_known_to_work() else ()
