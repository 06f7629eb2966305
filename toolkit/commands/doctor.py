"""tcdebug doctor"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import msgspec

from tcdebug.compiler.configuration.options import Options
from tcdebug.display.tables import show_checks

SUPPORTED = (2, 11)
"""The oldest torch that tcdebug works with."""


@dataclass(frozen=True)
class Check:
    """One thing that was looked at."""

    name: str
    good: bool
    detail: str
    advice: str = ""


def run(*, as_json: bool) -> int:
    """Check everything; 0 when all is well, 1 when something is missing."""
    checks = list(_checks())
    if as_json:
        sys.stdout.write(msgspec.json.encode([asdict(c) for c in checks]).decode() + "\n")
    else:
        show_checks([(c.name, c.good, c.detail, c.advice) for c in checks])
    return 0 if all(c.good for c in checks) else 1


def _checks() -> Iterator[Check]:
    options = Options.from_env()
    yield Check("python", sys.version_info >= (3, 11), sys.version.split()[0], "use 3.11 or newer")
    yield _torch()
    yield _compiler(options)
    yield _writable("cache", options.cache_dir)
    yield _writable("run folder", Path.cwd())
    yield _kernel(options)


def _torch() -> Check:
    try:
        import torch  # noqa: PLC0415 - whether it imports is the question
    except Exception as problem:
        return Check("torch", False, str(problem), "pip install torch")
    parts = tuple(int(p) for p in torch.__version__.split("+")[0].split(".")[:2])
    known = "tcdebug" in torch._dynamo.list_backends(exclude_tags=())
    if not known:
        return Check("torch", False, "backend 'tcdebug' is not registered", "reinstall tcdebug")
    advice = f"use torch {SUPPORTED[0]}.{SUPPORTED[1]} or newer"
    return Check("torch", parts >= SUPPORTED, str(torch.__version__), advice)


def _compiler(options: Options) -> Check:
    from tcdebug.compiler.runtime.toolchain import NoCompiler, find  # noqa: PLC0415 - start-up

    try:
        found = find(options.compiler)
    except NoCompiler as problem:
        return Check("compiler", False, str(problem), "apt install g++")
    math = "with vector math" if found.vector_math else "without vector math (needs glibc 2.35)"
    return Check("compiler", True, f"{found.version}, {math}")


def _writable(name: str, folder: Path) -> Check:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / ".tcdebug-probe"
        probe.touch()
        probe.unlink()
    except OSError as problem:
        return Check(name, False, str(problem), f"make {folder} writable")
    return Check(name, True, str(folder))


def _kernel(options: Options) -> Check:
    """A kernel compiled and run, compared with eager."""
    try:
        import torch  # noqa: PLC0415 - start-up time

        x = torch.arange(1000.0)
        compiled = torch.compile(
            lambda v: (v * 2).sum(),
            backend="tcdebug",
            options={"log": False, "cache_dir": str(options.cache_dir)},
        )
        right = bool(compiled(x) == (x * 2).sum())
    except Exception as problem:
        return Check("kernel", False, str(problem)[:300], "see the message")
    return Check("kernel", right, "compiled, run, equal to eager" if right else "a wrong sum")
