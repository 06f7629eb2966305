"""Turns the traces and events of a profiled run into the cost of its lines, kernels and graphs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tcdebug.profiling.attribution import Attribution, costs_of_lines, kernel_resources
from tcdebug.profiling.graph_calls import CompiledGraphs, compiled_graphs
from tcdebug.profiling.perfetto import write_perfetto
from tcdebug.profiling.process_profile import (
    Places,
    ProcessProfile,
    lines_of_breaks,
    process_profiles,
)
from tcdebug.profiling.profile import GraphTime, Profile
from tcdebug.reading.run_dir import Record


def read_profile(folder: Path, records: Sequence[Record]) -> Profile | None:
    """Return the profile of a run, whose traces become one file for Perfetto.

    None if no process of the run wrote a profile. Raises OSError, msgspec.DecodeError.
    """
    graphs = compiled_graphs(records)
    found = process_profiles(folder, records, graphs)
    if not found:
        return None
    profile = profile_of(records, graphs, found)
    profile.run, profile.trace = str(folder), str(write_perfetto(folder, found))
    return profile


def profile_of(
    records: Sequence[Record], graphs: CompiledGraphs, found: Sequence[ProcessProfile]
) -> Profile:
    """Return the costs that all processes of a run add up to."""
    busiest = max(found, key=lambda p: len(p.window.starts))
    speeds = busiest.recorded["copy_speeds"]
    attribution = Attribution(speeds, kernel_resources(records), graphs.steps)
    breaks = lines_of_breaks(records)
    for process in found:
        places = Places(process, breaks)
        for call in process.measured:
            attribution.add_graph_call(call, process.launched)
        for span in process.eager:
            attribution.add_eager(span, *places.place(span), process.launched.get(span, ()))
    kernels = attribution.kernels()
    return Profile(
        run="",
        trace="",
        steps=sum(len(p.window.starts) for p in found),
        warm_up=sum(p.window.warm_up for p in found),
        step_seconds=busiest.window.step_seconds,
        copy_speeds=dict(speeds),
        overhead_seconds=busiest.overhead_seconds,
        lines=costs_of_lines(kernels),
        kernels=kernels,
        graphs=_graph_times(found),
        notes=_notes(found),
    )


def _notes(found: Sequence[ProcessProfile]) -> list[str]:
    once = sorted({graph for process in found for graph in process.once})
    if not once:
        return []
    return [f"these graphs ran once, so their slower first call is measured: {', '.join(once)}"]


def _graph_times(found: Sequence[ProcessProfile]) -> list[GraphTime]:
    times: dict[str, GraphTime] = {}
    for process in found:
        for call in process.measured:
            time = times.setdefault(
                call.graph, GraphTime(call.graph, 0, 0.0, 0.0, call.graph in process.once)
            )
            time.calls += 1
            time.seconds += call.span.seconds
            spans = (*call.steps, call.span)
            on_device = [k.seconds for s in spans for k in process.launched.get(s, ())]
            on_host = [span.seconds for span in call.steps]
            time.kernel_seconds += sum(on_device or on_host)
    return sorted(times.values(), key=lambda time: -time.seconds)
