"""How a session intercepts a script's backends, by the mode of the job.

To add a mode, write a function of the type `Mode` and list it in `MODES`. The session calls it in
the script's process, and `subprocess_session` calls it in Python processes that the script starts.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from tcdebug.compiler.configuration.options import Options
from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.events.run_events import ConfigSnapshot
from tcdebug.compiler.gate.toggles import Toggles
from tcdebug.compiler.units import is_of_program
from tcdebug.minifier.capture.aot_functions import (
    aot_functions_replaced,
    aot_functions_unwatched,
)
from tcdebug.minifier.capture.capture import Capture
from tcdebug.minifier.capture.entries import as_it_is, entries_replaced
from tcdebug.minifier.capture.exports import (
    export_is_identity,
    in_eager,
    packages_replaced,
)
from tcdebug.minifier.capture.identity import compile_is_identity
from tcdebug.minifier.capture.marked_work import work_marked
from tcdebug.minifier.capture.packages.ranged_packages import packages_ranged
from tcdebug.minifier.capture.watching.calls import first_call_noted, raised_calls_noted
from tcdebug.minifier.capture.watching.watched_entries import entries_watched
from tcdebug.minifier.capture.watching.watcher import Watcher
from tcdebug.minifier.cases.layer_names import CUDAGRAPHS, PROGRAM_PASSES, is_layer
from tcdebug.minifier.cases.settings import assignments
from tcdebug.minifier.processes.job import Job
from tcdebug.minifier.processes.threads import one_thread
from tcdebug.minifier.profiling.inductor_profiling import kernels_traceable
from tcdebug.minifier.profiling.recording import recorded
from tcdebug.minifier.repros.script_setup import Script
from tcdebug.minifier.reuse.check import GuardCheck
from tcdebug.minifier.sessions.child_search import ChildSession
from tcdebug.minifier.sessions.device_session import DeviceSession
from tcdebug.minifier.sessions.off import program_switched, switched
from tcdebug.minifier.sessions.switching import Switching, captures_switched
from tcdebug.minifier.subjects.harmless_runs import ended_before_changes
from tcdebug.minifier.targets.backends import EMBEDDED
from tcdebug.minifier.targets.interception import backward_watched, compile_patched
from tcdebug.minifier.targets.program_passes import program_passes
from tcdebug.minifier.targets.warm_embedded import warm_up
from tcdebug.minifier.trace.torch_trace import traced


class Mode(Protocol):
    """Intercepts the script's backends until `patches` are undone.

    `child` says that the script has started this process.
    """

    def __call__(self, job: Job, patches: contextlib.ExitStack, *, child: bool) -> None: ...


def search(job: Job, patches: contextlib.ExitStack, *, child: bool) -> None:
    """Judge each graph, and investigate the first that fails. The script itself runs in eager."""
    session = ChildSession(job, one_thread()) if child else DeviceSession(job, one_thread())
    if job.backend == EMBEDDED or EMBEDDED in Path(job.script).read_text(errors="replace"):
        warm_up()
    patches.enter_context(session.loaded.recorded())
    log = EventLog(Path(job.run_dir))
    patches.enter_context(compile_patched(session.recorder.wrap, log))
    patches.enter_context(packages_replaced(session.recorder.judge_program, log))
    judge = session.recorder.judge_entry
    patches.enter_context(entries_replaced(judge, log, called_when_saved=True))
    patches.enter_context(work_marked(session.marks, log))
    patches.enter_context(first_call_noted(log))


def eager(job: Job, patches: contextlib.ExitStack, *, child: bool) -> None:
    """Compile and export nothing, and run no gated pass that can be left out."""
    log = EventLog(Path(job.run_dir))
    without_passes = Toggles.parse([PROGRAM_PASSES])
    patches.enter_context(program_passes(without_passes, EventLog(log.folder, artifacts=False)))
    patches.enter_context(compile_is_identity(log))
    patches.enter_context(export_is_identity(log))
    patches.enter_context(packages_replaced(in_eager, log))
    patches.enter_context(entries_replaced(as_it_is, log))


def compiled(job: Job, patches: contextlib.ExitStack, *, child: bool) -> None:
    """Compile as the script says, under the toggles of the environment."""
    options = Options.from_env()
    toggles, log = options.toggles, EventLog(Path(job.run_dir), artifacts=options.artifacts)
    patches.enter_context(captures_switched(toggles, log))
    switching = Switching(toggles, log, job.backend, patches)
    patches.enter_context(program_passes(toggles, log, switching.counts))
    patches.enter_context(compile_patched(switching.wrap, log))
    patches.enter_context(packages_replaced(switching.package, log))
    patches.enter_context(entries_replaced(switching.enter, log))


def layers(job: Job, patches: contextlib.ExitStack, *, child: bool) -> None:
    """Compile as the script says, without the layers and units that the environment names."""
    log, toggles = EventLog(Path(job.run_dir), artifacts=False), Options.from_env().toggles
    others = [t for t in toggles.texts() if not (is_layer(t) or is_of_program(t))]
    if {*others} <= {CUDAGRAPHS}:  # the caches stay on
        patches.enter_context(program_switched(toggles, log))
    else:
        patches.enter_context(switched(toggles, log))
    if forced := job.backend:
        patches.enter_context(compile_patched(lambda backend: forced, log))
    patches.enter_context(raised_calls_noted(tuple(toggles.texts()), log))


def harmless_layers(job: Job, patches: contextlib.ExitStack, *, child: bool) -> None:
    """The same, ending before the script changes a file or starts a program."""
    allowed = [Path(job.run_dir), Path(os.environ["TORCHINDUCTOR_CACHE_DIR"])]
    layers(job, patches, child=child)
    patches.enter_context(ended_before_changes(allowed, EventLog(None)))


def traced_layers(job: Job, patches: contextlib.ExitStack, *, child: bool) -> None:
    """The same, recording what torch reports about its compiles and caches."""
    patches.enter_context(traced(EventLog(Path(job.run_dir))))
    layers(job, patches, child=child)


def watch(job: Job, patches: contextlib.ExitStack, *, child: bool) -> None:
    """Leave a repro of every failure in a compiled graph."""
    log = _with_settings(job, patches)
    watcher = Watcher(Path(job.run_dir), log, _script(job, child), job.compare, job.every_call)
    if child:
        watcher.journal.pid = 0  # so that its folders include the pid
    patches.callback(watcher.journal.close)
    patches.enter_context(traced(log))
    patches.enter_context(backward_watched(watcher.backward_failed, log))
    patches.enter_context(first_call_noted(log))
    patches.enter_context(aot_functions_unwatched(log))
    forced = job.backend
    if not forced:
        patches.enter_context(entries_watched(watcher, log))
    if not job.guards:
        patches.enter_context(compile_patched(lambda backend: watcher.wrap(forced or backend), log))
        return
    one_thread()  # calls are made in forked children
    check = GuardCheck(log)
    patches.enter_context(check.watching())
    patches.enter_context(
        compile_patched(lambda backend: check.graphs.wrap(forced or backend, watcher.wrap), log)
    )


def explain(job: Job, patches: contextlib.ExitStack, *, child: bool) -> None:
    """Only record what torch reports about its compiles."""
    log = _with_settings(job, patches)
    patches.enter_context(traced(log))
    if forced := job.backend:
        patches.enter_context(compile_patched(lambda backend: forced, log))


def profile(job: Job, patches: contextlib.ExitStack, *, child: bool) -> None:
    """Profile the kernels of the script's graphs, and record the lines they compute."""
    log = _with_settings(job, patches)
    patches.enter_context(traced(log))
    patches.enter_context(kernels_traceable(log))
    patches.enter_context(aot_functions_unwatched(log))
    recording = patches.enter_context(recorded(Path(job.run_dir), log, job.steps))
    forced = job.backend
    patches.enter_context(
        compile_patched(lambda backend: recording.count.wrap(forced or backend), log)
    )
    patches.enter_context(packages_ranged(recording.count.called, log))


def capture(job: Job, patches: contextlib.ExitStack, *, child: bool) -> None:
    """Write a repro of every graph, or of the one requested."""
    if child and job.graph is not None:
        return  # graphs are counted in the script's own process
    output = Path(job.output) / (str(os.getpid()) if child else "")
    log = EventLog(Path(job.run_dir))
    script = _script(job, child)
    patches.enter_context(aot_functions_replaced(log))
    recorder = Capture(output, log, job.backend, script, job.graph, job.standalone)
    patches.enter_context(compile_patched(recorder.wrap, log))


def values(job: Job, patches: contextlib.ExitStack, *, child: bool) -> None:
    """Compare the values between the kernels of compiled graphs, in the script's own process."""
    if child:
        return
    from tcdebug.minifier.sessions.values import values_observed  # noqa: PLC0415 - start-up time

    log = _with_settings(job, patches)
    patches.enter_context(aot_functions_unwatched(log))
    patches.enter_context(values_observed(job, log))


MODES: Mapping[str, Mode] = {
    "search": search,
    "eager": eager,
    "compiled": compiled,
    "layers": layers,
    "harmless": harmless_layers,
    "traced": traced_layers,
    "watch": watch,
    "explain": explain,
    "profile": profile,
    "capture": capture,
    "values": values,
}


def _script(job: Job, child: bool) -> Script | None:
    return Script.running() if child else Script.given(job.script, job.args)


def _with_settings(job: Job, patches: contextlib.ExitStack) -> EventLog:
    """Return the log of this process, whose last event will be the settings of torch.

    It also switches off what the environment switches off, in every backend.
    """
    log = EventLog(Path(job.run_dir))
    patches.callback(lambda: log.emit(ConfigSnapshot(list(assignments()))))
    toggles = Options.from_env().toggles
    patches.enter_context(program_passes(toggles, log))
    if toggles.texts():
        patches.enter_context(switched(toggles, log))
    return log
