"""Building: the cache of shared objects, and the errors of a build."""

from __future__ import annotations

import ctypes
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from judge import assert_same, compiled
from stages import capture

from tcdebug.compiler.codegen.cpp.source import TranslationUnit, prelude, write_cpp
from tcdebug.compiler.errors.exceptions import CompileError, KernelError
from tcdebug.compiler.gate.gate import Gate
from tcdebug.compiler.gate.toggles import Toggles
from tcdebug.compiler.runtime import build as build_module
from tcdebug.compiler.runtime.build import BuildError, build
from tcdebug.compiler.runtime.launch import raise_status
from tcdebug.compiler.runtime.toolchain import NoCompiler, Toolchain, find
from tcdebug.reading.run_dir import read

SOURCE = 'extern "C" int answer() { return 42; }\n'


@pytest.fixture(scope="module")
def toolchain() -> Toolchain:
    return find("g++")


def shared_object(cache: Path) -> Path:
    (path,) = cache.rglob("*.so")
    return path


def kernels(cache: Path) -> list[Path]:
    """The sources of kernels in the cache, without the binding to Python."""
    return [p for p in cache.rglob("*.cpp") if "Python.h" not in p.read_text()]


def test_source_text_becomes_a_function(tmp_path: Path, toolchain: Toolchain) -> None:
    built = build(SOURCE, toolchain, tmp_path)
    assert built.library.answer() == 42
    assert built.verdict == "miss"


def test_the_second_build_is_a_cache_hit(tmp_path: Path, toolchain: Toolchain) -> None:
    first = build(SOURCE, toolchain, tmp_path)
    written = shared_object(tmp_path).stat().st_ino
    second = build(SOURCE, toolchain, tmp_path)
    assert (first.verdict, second.verdict) == ("miss", "hit")
    assert first.key == second.key
    assert shared_object(tmp_path).stat().st_ino == written


@pytest.mark.parametrize("content", [b"", b"not an object", b"\x7fELF cut off"])
def test_a_corrupt_shared_object_is_rebuilt(
    tmp_path: Path, toolchain: Toolchain, content: bytes
) -> None:
    build(SOURCE, toolchain, tmp_path)
    broken = tmp_path / "second"
    key = toolchain.key(SOURCE)
    path = broken / "so" / key[:2] / f"{key}.so"
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    built = build(SOURCE, toolchain, broken)
    assert built.verdict == "corrupt"
    assert built.library.answer() == 42
    assert build(SOURCE, toolchain, broken).verdict == "hit"


def test_the_source_is_kept_beside_the_object(tmp_path: Path, toolchain: Toolchain) -> None:
    build(SOURCE, toolchain, tmp_path)
    assert shared_object(tmp_path).with_suffix(".cpp").read_text() == SOURCE


def test_another_source_flag_or_machine_gives_another_key(toolchain: Toolchain) -> None:
    others = (
        replace(toolchain, target="other"),
        replace(toolchain, version="g++ 99"),
        replace(toolchain, tuning=("-mtune=other",)),
    )
    keys = [toolchain.key(SOURCE), toolchain.key(SOURCE + " "), *(o.key(SOURCE) for o in others)]
    assert len(set(keys)) == 5


@pytest.mark.skipif("avx512vl" not in Path("/proc/cpuinfo").read_text(), reason="needs AVX-512")
@pytest.mark.skipif("GenuineIntel" not in Path("/proc/cpuinfo").read_text(), reason="needs Intel")
@pytest.mark.parametrize(
    ("known", "tuning"), [("generic", ("-mtune=icelake-server",)), ("sapphirerapids", ())]
)
def test_a_processor_that_the_compiler_does_not_know_has_the_costs_of_a_similar_one(
    tmp_path: Path, known: str, tuning: tuple[str, ...]
) -> None:
    wrapper = tmp_path / "g++"
    answer = f'case "$*" in *--help=target*) echo "  -mtune=    \t{known}"; exit;; esac'
    wrapper.write_text(f'#!/bin/sh\n{answer}\nexec g++ "$@"\n')
    wrapper.chmod(0o755)
    assert find(str(wrapper)).tuning == tuning
    assert build(SOURCE, find(str(wrapper)), tmp_path / "cache").library.answer() == 42


def test_a_source_that_does_not_compile_shows_its_line(
    tmp_path: Path, toolchain: Toolchain
) -> None:
    with pytest.raises(BuildError, match=r"(?s)exited with 1.*int broken = nonsense;"):
        build("int fine;\nint broken = nonsense;\n", toolchain, tmp_path)
    assert list(tmp_path.rglob("*.so")) == []


def test_a_compiler_that_hangs_is_killed(
    tmp_path: Path, toolchain: Toolchain, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = tmp_path / "slow-compiler"
    slow.write_text("#!/bin/sh\nexec sleep 60\n")
    slow.chmod(0o755)
    monkeypatch.setattr(build_module, "TIMEOUT", 0.2)
    stuck = Toolchain(str(slow), "slow", toolchain.target, False)
    start = time.perf_counter()
    with pytest.raises(BuildError, match=r"timed out after 0\.2 s"):
        build(SOURCE, stuck, tmp_path / "cache")
    assert time.perf_counter() - start < 10


def crashing(folder: Path, condition: str) -> Path:
    """A compiler that crashes like g++ if its arguments are as in a condition of a shell."""
    compiler = folder / "crashing-compiler"
    compiler.write_text(
        f"""#!/bin/sh
case "$*" in {condition}) echo "k.cpp:1:5: internal compiler error: in vectorize" >&2; exit 1;; esac
exec g++ "$@"
"""
    )
    compiler.chmod(0o755)
    return compiler


VECTORS = "*-fno-tree-slp-vectorize*) ;; *kernels.cpp*"
"""Matches the compile of a source, unless it forbids vectors."""


def test_a_crashing_compiler_is_called_again_without_vectors(
    tmp_path: Path, toolchain: Toolchain
) -> None:
    broken = replace(toolchain, path=str(crashing(tmp_path, VECTORS)))
    built = build(SOURCE, broken, tmp_path / "cache")
    (unit,) = built.compiled
    assert "internal compiler error: in vectorize" in unit.crash
    assert built.library.answer() == 42
    always = replace(toolchain, path=str(crashing(tmp_path, "*kernels.cpp*")))
    with pytest.raises(BuildError, match="internal compiler error: in vectorize"):
        build(SOURCE, always, tmp_path / "other")


def test_kernels_without_vectors_after_a_crash_are_a_fallback(tmp_path: Path) -> None:
    broken = str(crashing(tmp_path, VECTORS))
    folders = {"cache_dir": tmp_path / "cache", "run_dir": tmp_path / "run"}
    options = {"compiler": broken, "log": True, **folders}
    x = torch.randn(2000)
    assert_same(compiled(lambda x: x.sin() + 1, options=options)(x), x.sin() + 1)
    (path,) = (tmp_path / "run").glob("events*.jsonl")
    (said,) = [r["data"] for r in read(path) if r["event"] == "fallback"]
    assert said["what"] == "vectors in cpp_add_0"
    assert "internal compiler error: in vectorize" in said["reason"]


def test_a_failed_build_leaves_no_files(tmp_path: Path, toolchain: Toolchain) -> None:
    with pytest.raises(BuildError):
        build("nonsense", toolchain, tmp_path)
    assert [p.suffix for p in tmp_path.rglob("*") if p.is_file()] in ([], [".lock"])


def test_parts_are_compiled_to_one_shared_object(tmp_path: Path, toolchain: Toolchain) -> None:
    parts = [
        prelude() + SOURCE,
        prelude() + 'extern "C" float three() { return exp_(1.0986123f); }\n',
    ]
    source = "".join(parts)
    built = build(source, toolchain, tmp_path, parts)
    assert len(built.compiled) == 2
    assert min(unit.seconds for unit in built.compiled) > 0
    built.library.three.restype = ctypes.c_float
    assert (built.library.answer(), round(built.library.three(), 5)) == (42, 3.0)
    assert shared_object(tmp_path).with_suffix(".cpp").read_text() == source
    assert [p.suffix for p in tmp_path.rglob("*.o")] == []
    again = build(source, toolchain, tmp_path)
    assert (again.verdict, again.compiled) == ("hit", ())
    with pytest.raises(BuildError, match=r"(?s)exited with 1.*int broken = nonsense;"):
        build("another", toolchain, tmp_path, [SOURCE, "int broken = nonsense;\n"])


def test_kernels_are_divided_if_there_is_enough_to_compile() -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
        return [x.sum(0), y.exp().amax(1), (x + 1).prod(1), y.var(0)]

    (schedule,) = capture(function, torch.ones(5, 7), torch.ones(9, 8)).schedules
    source = write_cpp(schedule.kernels(), schedule.graph.buffers(), Gate(Toggles()))
    assert source.units(4) == [TranslationUnit(tuple(source.calls), source.text)]
    longer = [replace(c, source=c.source + " " * 10_000) for c in source.calls.values()]
    units = replace(source, calls={c.kernel.name: c for c in longer}).units(2)
    assert len(units) == 2
    names = [[n for n in source.calls if f"int {n}(" in unit.text] for unit in units]
    assert [sorted(unit.kernels) for unit in units] == [sorted(found) for found in names]
    assert sorted(name for found in names for name in found) == sorted(source.calls)
    assert all(names)


RACE = """
import sys, time
from pathlib import Path
from tcdebug.compiler.runtime.build import build
from tcdebug.compiler.runtime.toolchain import find
toolchain = find("g++")
while time.time() < float(sys.argv[2]):
    time.sleep(0.001)
built = build(Path(sys.argv[3]).read_text(), toolchain, Path(sys.argv[1]))
sys.stdout.write(f"{built.verdict} {built.library.answer()}")
"""


def test_concurrent_processes_build_a_kernel_once(tmp_path: Path, warm_python: str) -> None:
    source = tmp_path / "source.cpp"
    source.write_text(prelude() + SOURCE)
    start = str(time.time() + 1)
    command = [warm_python, "-c", RACE, str(tmp_path / "cache"), start, str(source)]
    racers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    said = sorted(racer.communicate(timeout=120)[0] for racer in racers)
    assert said == ["hit 42", "hit 42", "miss 42"]
    assert len(list((tmp_path / "cache").rglob("*.so"))) == 1


# -- in the whole compiler ----------------------------------------------------------------------


def test_a_missing_compiler_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(NoCompiler, match=r"no C\+\+ compiler 'no-such-compiler' on PATH"):
        find("no-such-compiler")
    options = {"compiler": "no-such-compiler", "cache_dir": tmp_path}
    with pytest.raises(Exception) as found:
        compiled(lambda x: x + 1, options=options)(torch.ones(2))
    error = found.value.__cause__ if not isinstance(found.value, CompileError) else found.value
    assert isinstance(getattr(found.value, "inner_exception", error), CompileError)
    for part in ("stage runtime", "install g++", "TCDEBUG_CXX", "TCDEBUG_OFF=lower"):
        assert part in str(found.value)


def test_a_program_that_is_not_a_compiler_is_an_error(tmp_path: Path) -> None:
    impostor = tmp_path / "impostor"
    impostor.write_text("#!/bin/sh\nexit 3\n")
    impostor.chmod(0o755)
    with pytest.raises(NoCompiler, match="--version failed"):
        find(str(impostor))


def test_kernels_include_no_headers(tmp_path: Path) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x.exp(), -1) @ x.t()

    compiled(function, options={"cache_dir": tmp_path})(torch.ones(3, 3))
    (source,) = kernels(tmp_path)
    lines = source.read_text().splitlines()
    assert [line for line in lines if line.lstrip().startswith("#include")] == []
    assert not any("at::" in line or "torch::" in line or "c10" in line for line in lines)


def test_a_process_finds_kernels_built_by_another(tmp_path: Path, warm_python: str) -> None:
    script = (
        "import torch\n"
        "from tcdebug.compiler.backend import backend\n"
        f"options = {{'cache_dir': {str(tmp_path)!r}, 'log': False}}\n"
        "f = torch.compile(lambda x: x.sin() + 1, backend=backend, options=options)\n"
        "assert f(torch.zeros(3)).tolist() == [1.0, 1.0, 1.0]\n"
    )
    exec(compile(script, "<string>", "exec"), {})
    subprocess.run([warm_python, "-c", script], check=True, timeout=120)
    assert len(kernels(tmp_path)) == 1


def test_a_status_raises_the_right_error() -> None:
    with pytest.raises(IndexError, match="found by k"):
        raise_status(1, "k")
    with pytest.raises(KernelError, match="ZeroDivisionError"):
        raise_status(2, "k")
    with pytest.raises(KernelError, match="k ended with status 9"):
        raise_status(9, "k")


def test_a_library_is_a_plain_shared_object(tmp_path: Path, toolchain: Toolchain) -> None:
    build(SOURCE, toolchain, tmp_path)
    assert ctypes.CDLL(str(shared_object(tmp_path))).answer() == 42


def test_a_traceback_shows_the_line_of_the_wrapper() -> None:
    f = compiled(lambda x, i: x[i] + 1)
    with pytest.raises(IndexError) as found:
        f(torch.ones(3), torch.tensor([7]))
    frames = [str(entry.path) for entry in found.traceback]
    assert any("<tcdebug 0_0.inference direct>" in frame for frame in frames)
