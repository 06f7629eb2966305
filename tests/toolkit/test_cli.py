"""The command line itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from click.shell_completion import ShellComplete

from tcdebug.cli import main as cli
from tcdebug.cli.closed_units import CLOSED, OTHERS, all_known
from tcdebug.cli.output_schema import OUTPUTS
from tcdebug.commands import units
from tcdebug.compiler.events import run_folder
from tcdebug.compiler.gate.toggles import BadToggle, Toggles
from tcdebug.compiler.patching import Patch
from tcdebug.compiler.units import units as embedded_units
from tcdebug.minifier.processes.job import check_compiler
from tcdebug.minifier.targets.inductor.units import units as inductor_units
from tcdebug.minifier.targets.unit_names import OPEN

Command = Callable[..., Any]


def test_help_does_not_import_torch(cold: Command) -> None:
    code = """
import sys
from tcdebug.cli.main import cli
try:
    cli(["--help"])
except SystemExit as end:
    print(end.code, "torch" in sys.modules, "rich" in sys.modules)
"""
    assert cold("-c", code).stdout.splitlines()[-1] == "0 False False"


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    """Exit status, stdout and stderr of a command that runs in this process, which has torch."""
    with pytest.raises(SystemExit) as end:
        cli.cli.main([*words])
    return end.value.code, *capsys.readouterr()  # type: ignore[return-value] # ends with a number


EVENT_LINES = {"logs", "logs query", "logs show"}
"""Commands that print events with --json; their schema is that of events."""


def test_every_command_with_json_has_a_published_schema() -> None:
    found: set[str] = set()
    stack: list[tuple[str, Any]] = [("", cli.cli)]
    while stack:
        name, command = stack.pop()
        if any("--json" in p.opts for p in command.params):
            found.add(name)
        below = getattr(command, "commands", {}).items()
        stack += [(f"{name} {word}".strip(), inner) for word, inner in below]
    assert found - EVENT_LINES == {name for name in OUTPUTS if name[-1].islower()} - {
        "doctor --patches"
    }


@pytest.mark.parametrize(
    "words",
    [
        ("units", "--json", "memory"),
        ("units", "--backend", "inductor", "--json"),
        ("doctor", "--patches", "--json"),
        ("explain", "--json", "TCD012"),
        ("cache", "--json"),
    ],
    ids=" ".join,
)
def test_the_output_of_a_command_matches_the_published_schema(
    words: tuple[str, ...], inside: Command
) -> None:
    assert inside(*words).json


def test_units_are_listed_by_family(capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed(capsys, "units", "memory")[1].splitlines()
    assert any(line.startswith("memory.reuse") for line in lines)
    everything = {u["name"] for u in json.loads(printed(capsys, "units", "--json")[1])}
    assert {
        "pregrad.dropout_removal",
        "decompose.aten.tanh_backward.default",
        "partition.min_cut",
        "passes.algebraic",
        "lower.aten.sin.default",
        "fuse.inline",
        "codegen.vectorize",
        "memory.reuse",
    } <= everything


def test_an_unknown_family_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    status, _, told = printed(capsys, "units", "nonsense")
    assert status == 2
    assert "no unit 'nonsense'; the families are: codegen, decompose, fuse," in told
    assert "no unit 'fuze'; the nearest are: fuse" in printed(capsys, "units", "fuze")[2]


def test_the_doctor_reports_that_nothing_is_missing(tcdebug: Command) -> None:
    done = tcdebug("doctor", "--json")
    assert done.status == 0, done.stdout
    checks = {c["name"]: c["good"] for c in done.json}
    assert checks["kernel"] is True


def test_the_doctor_lists_what_is_patched_in_torch(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = printed(capsys, "doctor", "--patches", "--json")
    assert status == 0
    listed = {f"{p['owner']}.{p['attribute']}": p for p in json.loads(out)}
    assert listed["torch._inductor.scheduler:Scheduler.can_fuse"] == {
        "owner": "torch._inductor.scheduler:Scheduler",
        "attribute": "can_fuse",
        "purpose": "fuse.*, except fuse.inline, cannot be switched off",
        "seen": ["2.11", "2.12", "2.13", "2.14", "2.15"],
        "fits": True,
        "problem": "",
    }
    status, out, _ = printed(capsys, "doctor", "--patches")
    assert status == 0
    assert "torch._dynamo.optimize" in out


def test_the_doctor_says_which_patch_does_not_fit(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = Patch("torch._inductor.scheduler:Scheduler", "gone", "nothing")
    monkeypatch.setattr("tcdebug.minifier.patches.PATCHES", (gone,))
    status, out, _ = printed(capsys, "doctor", "--patches")
    assert status == 1
    assert "NO: torch._inductor.scheduler:Scheduler has no gone" in out


def test_the_doctor_names_what_is_missing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TCDEBUG_CXX", "/no/such/compiler")
    monkeypatch.setenv("TCDEBUG_CACHE_DIR", str(tmp_path))
    status, out, _ = printed(capsys, "doctor", "--json")
    assert status == 1
    checks = {c["name"]: (c["good"], c["detail"]) for c in json.loads(out)}
    assert checks["compiler"][0] is False
    assert checks["kernel"] == (False, "not compiled")


@pytest.mark.parametrize("command", [("bisect", "script.py"), ("run", "script.py"), ("doctor",)])
def test_a_torch_that_cannot_be_imported_is_not_an_internal_error(
    command: tuple[str, ...], tmp_path: Path
) -> None:
    missing = "libcudart.so.13: cannot open shared object file"
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text(f"raise OSError({missing!r})")
    (tmp_path / "script.py").write_text("import torch")
    program = [sys.executable, "-c", "from tcdebug.cli.main import main; main()", *command]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        program, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert f"OSError: {missing}" in done.stdout + done.stderr
    if command == ("doctor",):
        assert done.returncode == 1
        assert "make torch importable first" in done.stdout
    else:
        assert done.returncode == 2
        assert "error TCD022: import torch: OSError" in done.stderr
        assert f"`{sys.executable} -c 'import torch'` shows the traceback" in done.stderr


@pytest.mark.parametrize("command", ["bisect", "minify"])
def test_a_search_without_a_compiler_is_refused_before_a_process_starts(
    command: str, inside: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TCDEBUG_CXX", "/no/such/compiler")
    (tmp_path / "script.py").write_text("raise SystemExit('it ran')")
    done = inside(command, "script.py")
    assert (done.status, done.stdout) == (2, "")
    assert "error TCD103: no C++ compiler '/no/such/compiler' on PATH: install g++" in done.stderr
    assert not (tmp_path / ".tcdebug").exists()
    monkeypatch.setenv("TCDEBUG_OFF", "lower")  # no kernel is compiled then
    check_compiler()


def test_an_internal_error_exits_with_3_and_shows_its_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(**arguments: object) -> int:
        raise ZeroDivisionError("planted")

    monkeypatch.setattr(units, "run", broken)
    monkeypatch.setattr("sys.argv", ["tcdebug", "units"])
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert end.value.code == 3
    error = capsys.readouterr().err
    assert "ZeroDivisionError: planted" in error
    assert "this is a bug in tcdebug" in error


def test_an_internal_error_in_an_investigation_exits_with_3(
    tcdebug: Command, tmp_path: Path
) -> None:
    (tmp_path / "script.py").write_text("""
import torch
from tcdebug.minifier.sessions.search import Session
def broken(*args):
    raise ZeroDivisionError("planted")
Session._judged = broken
torch.compile(torch.tanh, backend="tcdebug")(torch.ones(3))
""")
    done = tcdebug("bisect", "script.py")
    assert done.status == 3
    assert "ZeroDivisionError: planted" in done.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_completion_script_of_each_shell_is_printed(
    shell: str, capsys: pytest.CaptureFixture[str]
) -> None:
    cli.cli.main(["completion", shell], standalone_mode=False)
    assert "_TCDEBUG_COMPLETE" in capsys.readouterr().out


def test_names_of_runs_are_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    name = run_folder.create("bisect").name
    words = ShellComplete(cli.cli, {}, "tcdebug", "_TCDEBUG_COMPLETE")
    assert [c.value for c in words.get_completions(["logs", "summary"], name[:4])] == [name]
    assert [c.value for c in words.get_completions(["diff"], "x")] == []


@pytest.mark.parametrize("command", ["run", "bisect", "minify"])
def test_a_misspelt_unit_is_a_usage_error_before_anything_runs(
    command: str, inside: Command, tmp_path: Path
) -> None:
    (tmp_path / "script.py").write_text("raise SystemExit('it ran')")
    done = inside(command, "--off", "fuze.vertical", "script.py")
    assert (done.status, done.stdout) == (2, "")
    assert "error TCD005: no unit 'fuze.vertical'; the nearest are: fuse.vertical" in done.stderr
    assert not (tmp_path / ".tcdebug").exists()


def families(names: Iterable[str]) -> set[str]:
    return {name.partition(".")[0] for name in names}


def test_units_that_are_known_without_torch_are_those_of_both_compilers() -> None:
    known = {unit.name for unit in (*embedded_units(), *inductor_units())}
    closed = {n for n in CLOSED if not n.startswith("layer.")}
    assert closed == {name for name in known if name.partition(".")[0] not in (*OTHERS, "layer")}
    assert families(known) | families(OPEN) | {"layer"} == families(CLOSED) | {*OTHERS}


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("fuse.vertcal", "the nearest are: fuse.vertical, fuse.horizontal"),
        ("memry", "the nearest are: memory"),
        ("only:layer.dynamoo", "the nearest are: layer.dynamo,"),
        ("fuse.zzzz", "the units of fuse are: fuse.inline, fuse.vertical, fuse.reduction,"),
    ],
)
def test_a_misspelt_unit_needs_no_torch(name: str, said: str) -> None:
    with pytest.raises(BadToggle, match=said):
        all_known(Toggles.parse([name]))
    assert all_known(Toggles.parse(["all:3", "fuse", "layer.cache:2", "site:12"]))
    assert not all_known(Toggles.parse(["fuse", "lower.aten.sinn"]))
    assert not all_known(Toggles.parse(["zzzzzz"]))


MISSING = """
import torch
try:
    print(torch.compile(torch.sin)(torch.ones(2)))
except Exception:
    print("caught")
"""


@pytest.mark.parametrize("command", ["run", "bisect", "explain", "repro"])
def test_an_unregistered_backend_is_a_usage_error(
    command: str, tcdebug: Command, tmp_path: Path
) -> None:
    (tmp_path / "script.py").write_text(MISSING)
    done = tcdebug(command, "--backend", "iductor", "script.py")
    assert (done.status, done.stdout) == (2, "")
    assert "TCD017: no backend 'iductor' is registered; the nearest are: inductor" in done.stderr


def test_a_backend_that_the_script_registers_is_accepted(tcdebug: Command, tmp_path: Path) -> None:
    register = """
import torch
@torch._dynamo.register_backend
def mine(graph, inputs):
    print("mine")
    return graph.forward
"""
    (tmp_path / "script.py").write_text(register + MISSING.replace("print(", "("))
    done = tcdebug("run", "--backend", "mine", "script.py")
    assert (done.status, done.stdout) == (0, "mine\n")


def test_a_script_that_names_an_unknown_backend_is_bad_usage(
    tcdebug: Command, tmp_path: Path
) -> None:
    (tmp_path / "script.py").write_text(
        "import torch\ntorch.compile(torch.sin, backend='iductor')(torch.ones(2))\n"
    )
    done = tcdebug("bisect", "script.py")
    assert done.status == 2
    assert "names a backend that is not registered" in done.stderr
    assert "Invalid backend: 'iductor'" in done.stderr


def test_toggles_of_a_run_apply_to_inductor_and_unmatched_ones_are_named(
    tcdebug: Command, tmp_path: Path
) -> None:
    (tmp_path / "script.py").write_text("import torch\ntorch.compile(torch.tanh)(torch.ones(2))\n")
    off = "lower.aten.tanh.default"
    done = tcdebug("run", "--off", off, "--off", "postgrad.no_such", "script.py")
    assert done.status == 0, done.stderr
    events = tcdebug("logs", "query", "--unit", off, "--json").stdout.splitlines()
    answers = [json.loads(line)["data"] for line in events]
    assert [a["allowed"] for a in answers if a.get("subject") == "tanh"] == [False]
    assert "--off postgrad.no_such: no step of this run has this name" in done.stderr
