"""Triton source to machine code, several kernels at a time."""

from __future__ import annotations

import importlib
import importlib.util
import os
import tempfile
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from types import ModuleType
from typing import Any

from tcdebug.compiler.codegen.triton.source import TritonKernel
from tcdebug.compiler.codegen.triton.tiles import Tile
from tcdebug.compiler.runtime import prewarm

TRIES = 5
"""Python 3.11 counts the depth of what it parses for all threads together, and raises a
SystemError where another thread parsed meanwhile (CPython's issue 106905)."""
DIVISIBLE, ALIGNED, WIDE = 1, 2, 4
"""What a version of a kernel takes for granted: of sizes, of addresses, and what it is able to."""


@dataclass(frozen=True)
class Binary:
    """A compiled kernel: what the driver loads."""

    cubin: bytes
    name: str
    shared: int
    threads: int


def import_source(text: str, cache_dir: Path) -> ModuleType:
    """The module of a source; a file, since Triton reads its functions' text from there."""
    key = blake2b(text.encode(), digest_size=16).hexdigest()
    path = cache_dir / "triton" / f"k{key}.py"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(
            "w", dir=path.parent, suffix=".py", delete=False
        ) as beside:
            beside.write(text)
        os.replace(beside.name, path)
    spec = importlib.util.spec_from_file_location(f"tcdebug_triton_{key}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def constants(tile: Tile, variant: int, language: Any) -> dict[str, Any]:
    """The values that a version is compiled for."""
    return {"INDEX": language.int64 if variant & WIDE else language.int32, **tile.constants}


def prepare() -> None:
    """What Triton does once a process: it imports itself, and hashes itself for its cache."""
    importlib.import_module("triton.compiler")
    importlib.import_module("triton.runtime.cache").triton_key()


def compile_kernel(function: Any, kernel: TritonKernel, variant: int, capability: int) -> Binary:
    """One version of a kernel for a device of a compute capability, such as 90."""
    import triton  # noqa: PLC0415 # start-up time: only graphs on a GPU need it
    from triton.backends.compiler import GPUTarget  # noqa: PLC0415 # the same
    from triton.compiler import ASTSource  # noqa: PLC0415 # the same

    fixed = constants(kernel.tile, variant, triton.language)
    size = "i64" if variant & WIDE else "i32"
    signature = {name: size if t == "size" else t for name, t in kernel.signature.items()}
    divided = [["tt.divisibility", 16]]
    attributes = {
        (position,): divided
        for position, (name, t) in enumerate(kernel.signature.items())
        if (t.startswith("*") and variant & ALIGNED) or (t == "size" and variant & DIVISIBLE)
    }
    source = ASTSource(
        function,
        {**signature, **dict.fromkeys(fixed, "constexpr")},
        {(function.arg_names.index(name),): value for name, value in fixed.items()},
        attributes,
    )
    launched = {"num_warps": kernel.tile.warps, "num_stages": kernel.tile.stages}
    options = {**launched, "debug": kernel.checked, "enable_fp_fusion": True}
    target = GPUTarget("cuda", capability, 32)
    compiled = _again(lambda: triton.compile(source, target=target, options=options))
    data = compiled.metadata
    return Binary(compiled.asm["cubin"], data.name, data.shared, data.num_warps * 32)


def _again(compile_one: Callable[[], Any]) -> Any:
    """What a compile returns, tried again where Python's parser was disturbed."""
    for _ in range(TRIES - 1):
        try:
            return compile_one()
        except SystemError as error:
            if "recursion depth mismatch" not in str(error):
                raise
    return compile_one()


@lru_cache(maxsize=1)
def _builders() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(min(16, os.cpu_count() or 1), thread_name_prefix="tcdebug-triton")


def compile_all(
    module: ModuleType,
    kernels: Mapping[str, TritonKernel],
    variants: Iterable[int],
    capability: int,
) -> dict[tuple[str, int], Future[Binary]]:
    """Versions of kernels, each compiled in a thread."""
    prewarm.finished(prepare)
    return {
        (name, variant): _builders().submit(
            compile_kernel, getattr(module, name), kernel, variant, capability
        )
        for name, kernel in kernels.items()
        for variant in variants
    }
