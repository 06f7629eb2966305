"""Compiles Triton kernels to machine code, several at a time."""

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

from tcdebug.compiler.codegen.triton.tiles import Tile
from tcdebug.compiler.codegen.triton.written import TritonKernel
from tcdebug.compiler.runtime import prewarm

TRIES = 5
"""Attempts per compile. Python 3.11 shares the recursion depth of its parser among threads, and
raises SystemError if another thread parses at the same time (CPython issue 106905)."""
DIVISIBLE, ALIGNED, WIDE = 1, 2, 4
"""The bits of a variant: it requires sizes divisible by 16, requires addresses divisible by 16, and
supports indices that need int64."""


@dataclass(frozen=True)
class Binary:
    """A compiled kernel, ready for the driver. `shared` is in bytes."""

    cubin: bytes
    name: str
    shared: int
    threads: int


def import_source(text: str, cache_dir: Path) -> ModuleType:
    """Import a source as a module, from a file, since Triton reads the source of functions."""
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
    """Return the compile-time constants of a variant."""
    return {"INDEX": language.int64 if variant & WIDE else language.int32, **tile.constants}


def prepare() -> None:
    """Import Triton and let it hash itself for its cache, which it does once per process."""
    importlib.import_module("triton.compiler")
    importlib.import_module("triton.runtime.cache").triton_key()


def compile_kernel(function: Any, kernel: TritonKernel, variant: int, capability: int) -> Binary:
    """Compile one variant of a kernel for a compute capability, such as 90."""
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
    # with "debug", which indices out of range need, Triton would also reject sums that wrap around
    checks = {"debug": kernel.checked, "sanitize_overflow": False}
    # what two kernels compute alike has the same bits, so that a value equals the extreme of a row;
    # functions of libdevice take subnormal numbers as they are, as eager's kernels do
    exact = {"enable_fp_fusion": False, "enable_reflect_ftz": False}
    options = {**launched, **checks, **exact}
    target = GPUTarget("cuda", capability, 32)
    compiled = _again(lambda: triton.compile(source, target=target, options=options))
    data = compiled.metadata
    return Binary(compiled.asm["cubin"], data.name, data.shared, data.num_warps * 32)


def _again(compile_one: Callable[[], Any]) -> Any:
    """Return the result of a compile, which is repeated if Python's parser fails; see `TRIES`."""
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
    """Compile variants of kernels in threads: (kernel, variant) -> future."""
    prewarm.finished(prepare)
    return {
        (name, variant): _builders().submit(
            compile_kernel, getattr(module, name), kernel, variant, capability
        )
        for name, kernel in kernels.items()
        for variant in variants
    }
