"""Object files that candidates share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from torch._inductor import cpp_builder, exc

from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.gate.toggles import Toggles
from tcdebug.minifier.targets import inductor


@pytest.fixture
def compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A compiler that writes its arguments to a file before it compiles."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))
    path = tmp_path / "g++"
    path.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/calls\nexec c++ "$@"\n')
    path.chmod(0o755)
    with inductor.switched(Toggles(), EventLog(None)):
        yield path


def compile_code(compiler: Path, code: str, flags: str = "") -> bytes:
    source, target = compiler.with_name("code.cpp"), compiler.with_name("code.o")
    source.write_text(code)
    target.unlink(missing_ok=True)
    command = f"{compiler} {source} {flags} -c -o {target}"
    cpp_builder._run_compile_cmd(command, cwd=str(compiler.parent))
    source.write_text(f"{code}\n// {command}\n")
    return target.read_bytes()


def calls(compiler: Path) -> int:
    return len(compiler.with_name("calls").read_text().splitlines())


def test_equal_code_is_compiled_once(compiler: Path) -> None:
    first = compile_code(compiler, "int one() { return 1; }\n")
    with_comment = compiler.with_name("code.cpp").read_text()
    assert compile_code(compiler, with_comment) == first
    assert calls(compiler) == 1


def test_other_code_and_other_flags_are_compiled_anew(compiler: Path) -> None:
    first = compile_code(compiler, "int one() { return 1; }\n")
    assert compile_code(compiler, "int one() { return 2; }\n") != first
    compile_code(compiler, "int one() { return 1; }\n", "-O1")
    assert calls(compiler) == 3


def test_code_that_does_not_compile_raises_each_time(compiler: Path) -> None:
    for _ in range(2):
        with pytest.raises(exc.CppCompileError):
            compile_code(compiler, "int one() { return two; }\n")
    assert calls(compiler) == 2


def test_a_command_that_the_script_has_replaced_runs_each_time(
    compiler: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[str] = []
    with monkeypatch.context() as patch:
        patch.setattr(cpp_builder, "_run_compile_cmd", lambda cmd_line, cwd: ran.append(cmd_line))
        with inductor.switched(Toggles(), EventLog(None)):
            for _ in range(2):
                cpp_builder._run_compile_cmd(f"{compiler} a.cpp -c -o a.o", cwd=".")
    assert len(ran) == 2
