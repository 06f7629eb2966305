"""tcdebug doctor"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from tcdebug.compiler.configuration.options import Options
from tcdebug.compiler.patching import SUPPORTED, Patch, misfit
from tcdebug.display.tables import show_checks, show_table
from tcdebug.output.structures import Check, CheckedPatch


def run(*, patches: bool, as_json: bool) -> int:
    """Run all checks; 0 if all is well, 1 if something is missing."""
    return _run_patches(as_json=as_json) if patches else _run_checks(as_json=as_json)


def _run_patches(*, as_json: bool) -> int:
    """List the patches of torch; 1 if one does not fit."""
    from tcdebug.minifier.patches import PATCHES  # noqa: PLC0415 - imports torch

    found = list(checked(PATCHES))
    if as_json:
        sys.stdout.write(msgspec.json.encode(found).decode() + "\n")
    else:
        columns = ("fits", "patched", "without it")
        rows = [
            ("yes" if c.fits else f"NO: {c.problem}", f"{c.owner}.{c.attribute}", c.purpose)
            for c in found
        ]
        show_table(columns, rows)
    return 0 if all(c.fits for c in found) else 1


def checked(patches: Iterable[Patch]) -> Iterator[CheckedPatch]:
    """Yield every patch with whether it fits. Nothing is patched."""
    for patch in patches:
        problem = misfit(patch)
        yield CheckedPatch(
            patch.owner, patch.attribute, patch.purpose, tuple(patch.seen), not problem, problem
        )


def _run_checks(*, as_json: bool) -> int:
    checks = list(_checks())
    if as_json:
        sys.stdout.write(msgspec.json.encode(checks).decode() + "\n")
    else:
        show_checks([(c.name, c.good, c.detail, c.advice) for c in checks])
    return 0 if all(c.good for c in checks) else 1


def _checks() -> Iterator[Check]:
    options = Options.from_env()
    yield Check("python", sys.version_info >= (3, 11), sys.version.split()[0], "use 3.11 or newer")
    yield _torch()
    compiler = _compiler(options)
    yield compiler
    yield _writable("cache", options.cache_dir)
    yield _writable("run folder", Path.cwd())
    if not compiler.good:
        yield Check("kernel", False, "not compiled", "install the compiler first")
    elif "torch" not in sys.modules:
        yield Check("kernel", False, "not compiled", "make torch importable first")
    else:
        yield _kernel(options)


def _torch() -> Check:
    try:
        import torch  # noqa: PLC0415 - whether it imports is the question
    except ModuleNotFoundError as problem:
        return Check("torch", False, str(problem), "pip install torch")
    except Exception as problem:
        detail = f"{type(problem).__name__}: {problem}"
        return Check("torch", False, detail, "python -c 'import torch' shows the traceback")
    version = ".".join(torch.__version__.split(".")[:2])
    known = "tcdebug" in torch._dynamo.list_backends(exclude_tags=())
    if not known:
        return Check("torch", False, "backend 'tcdebug' is not registered", "reinstall tcdebug")
    advice = f"use torch {SUPPORTED[0]} to {SUPPORTED[-1]}"
    return Check("torch", version in SUPPORTED, str(torch.__version__), advice)


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
    """Compile and run a kernel and compare the result with eager."""
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
        message = str(problem).partition("\n\nSet TORCHDYNAMO_VERBOSE")[0]
        return Check("kernel", False, message[:300], "see the message")
    return Check("kernel", right, "compiled, run, equal to eager" if right else "the sum is wrong")
