"""The kernels that a candidate builds in forks, with stand-ins for kernels on a GPU."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest
from torch._inductor import config
from torch._inductor.codecache import PyCodeCache

from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.gate.gate import Gate
from tcdebug.compiler.gate.toggles import Toggles
from tcdebug.compiler.patching import Patch
from tcdebug.minifier.targets.inductor import parallel_builds
from tcdebug.minifier.targets.inductor.parallel_builds import kernels_after
from tcdebug.minifier.targets.inductor.triton_compile import ask_about_compile
from tcdebug.reading.run_dir import read

STAND_IN = """
import os, pathlib, time

class Kernel:
    inductor_meta = {{"kernel_name": "{name}"}}
    autotune_cache_info = None

    def set_compile_info(self, *known):
        pass

    def precompile(self, warm_cache_only=False, **options):
        place = pathlib.Path({folder!r}) / ("ahead" if warm_cache_only else "built")
        with place.open("a") as file:
            file.write("{name} %d\\n" % os.getpid())
        {work}

{name} = Kernel()
"""
NAMES = [f"triton_poi_fused_sin_{number}" for number in range(5)]
SLOW = "time.sleep(0 if warm_cache_only else 0.4)"
ENDS = "os._exit(1) if warm_cache_only else time.sleep(0.4)"
COMPILE_UNITS = ["triton.llvm", "triton.ptxas", "triton.multiply_add"]


def module(folder: Path, work: str) -> str:
    """Generated code that builds five kernels."""
    lines = [
        "from torch._inductor.async_compile import AsyncCompile",
        "async_compile = AsyncCompile()",
    ]
    for name in NAMES:
        source = STAND_IN.format(name=name, folder=str(folder), work=work)
        lines.append(f"{name} = async_compile.triton({name!r}, {source!r}, device_str='cuda')")
    return "\n".join([*lines, "async_compile.wait(globals())", ""])


class Wrapper:
    """The generated code of a graph."""

    def __init__(self, value: str) -> None:
        self.value = value


class Graph:
    """Stands in for inductor's graph, whose last step this is."""

    def load(self, wrapper_code: Wrapper) -> None:
        PyCodeCache.load(wrapper_code.value)


def built(
    folder: Path, work: str, monkeypatch: pytest.MonkeyPatch, log: EventLog | None = None
) -> tuple[list[list[str]], list[list[str]], Gate]:
    """Names and processes of the kernels built in forks, of the others, and the gate."""
    loading = Patch(f"{__name__}:Graph", "load", "", takes=("wrapper_code",))
    monkeypatch.setattr(parallel_builds, "LOADING", loading)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1})
    gate = Gate(Toggles.parse([]))
    with (
        config.patch(compile_threads=1),
        parallel_builds.parallel_builds(gate, log or EventLog(None)),
    ):
        Graph().load(Wrapper(module(folder, work)))
    return lines_of(folder / "ahead"), lines_of(folder / "built"), gate


def lines_of(path: Path) -> list[list[str]]:
    return [line.split() for line in path.read_text().splitlines()] if path.exists() else []


def test_kernels_after_one_that_was_not_cached_are_built_once_in_forks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ahead, own, gate = built(tmp_path, SLOW, monkeypatch)
    assert sorted(name for name, _ in ahead) == NAMES[1:]
    assert len({pid for _, pid in ahead}) == 2
    assert own == [[name, str(os.getpid())] for name in NAMES]
    assert gate.decisions == []


def test_cached_kernels_are_built_without_forks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ahead, own, _ = built(tmp_path, "pass", monkeypatch)
    assert ahead == []
    assert [name for name, _ in own] == NAMES


def test_a_fork_that_ends_early_is_a_fallback_and_loses_no_kernel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = EventLog(tmp_path, own=True)
    _, own, _ = built(tmp_path, ENDS, monkeypatch, log)
    assert [name for name, _ in own] == NAMES
    said = [r["data"] for r in read(tmp_path / "events.jsonl") if r["event"] == "fallback"]
    assert [(one["what"], one["reason"]) for one in said] == [
        ("parallel builds", "a fork of the candidate built no kernels")
    ] * 2


def test_kernels_are_read_from_generated_code_in_order() -> None:
    code = (
        "a = async_compile.cpp_pybinding(['float*'], 'x')\n"
        "b = async_compile.triton('b', 'first', device_str='cuda')\n"
        "c = other.triton('c', 'second')\n"
        "d = async_compile.triton('d', 'third', device_str='cuda')\n"
    )
    assert kernels_after("b", code) == [("d", "third")]
    assert kernels_after("d", code) == []
    assert kernels_after("unknown", code) == []


def test_a_fork_asks_for_kernels_of_others_what_their_compile_asks() -> None:
    gate = Gate(Toggles.parse([]))
    tuner = SimpleNamespace(inductor_meta={"kernel_name": "triton_poi_fused_sin_0"})
    ask_about_compile(gate, tuner)
    assert [(d.unit, d.subject) for d in gate.decisions] == [
        (unit, "triton_poi_fused_sin") for unit in COMPILE_UNITS
    ]
