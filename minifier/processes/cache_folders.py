"""Cache folders for inductor that hold nothing but previously compiled kernels."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tcdebug.compiler.configuration.options import Options

GRAPHS = ("fxgraph", "aotautograd", "dynamo", "locks", "tmp", "cache")
"""Prefixes of folders in inductor's cache that hold more than kernels."""

LATEST = 128
"""As many folders of kernels are linked, the latest ones: links of thousands of files take long."""
SMALL = 600
"""The sources with which torch tries vector instructions have fewer bytes, and are never late."""
LOCKS = shutil.ignore_patterns("*.lock")


def known_kernels() -> Path:
    """Return the cache folder that candidates share."""
    return Options.from_env().cache_dir.resolve() / "inductor"


@contextlib.contextmanager
def kernel_cache() -> Iterator[Path]:
    """Create a cache folder for inductor that is empty except for previously compiled kernels.

    Kernels are cached by their source, so they are valid for any compile. Without them a compile
    spends seconds in the C++ compiler.
    """
    known = known_kernels()
    known.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="script-", dir=known.parent) as folder:
        link_kernels(known, Path(folder))
        yield Path(folder)


def link_kernels(known: Path, folder: Path, *, headers_only: bool = False) -> None:
    """Link the latest kernels of one cache folder into another, without its compiled graphs.

    With `headers_only`, only precompiled headers are linked.
    """
    with contextlib.suppress(FileNotFoundError):
        entries = [e for e in os.scandir(known) if e.is_dir() and not e.name.startswith(GRAPHS)]
        kernels = [e for e in entries if len(e.name) == 2 and not headers_only]
        kernels.sort(key=lambda entry: entry.stat().st_mtime, reverse=True)
        for entry in (*(e for e in entries if len(e.name) != 2), *kernels[:LATEST]):
            with contextlib.suppress(OSError):  # a candidate may be writing it
                target = Path(folder, entry.name)
                shutil.copytree(
                    entry, target, copy_function=_link, dirs_exist_ok=True, ignore=LOCKS
                )
        for entry in kernels[LATEST:]:
            _link_small(entry, Path(folder, entry.name))


def _link_small(bucket: os.DirEntry[str], target: Path) -> None:
    """Link what is built of small sources in a folder: torch tries vector instructions with it."""
    with contextlib.suppress(OSError):
        for source in [e for e in os.scandir(bucket) if e.name.endswith(".cpp")]:
            if source.stat().st_size < SMALL:
                target.mkdir(exist_ok=True)
                for path in Path(bucket).glob(f"{source.name.removesuffix('.cpp')}.*"):
                    _link(str(path), str(target / path.name))


def _link(source: str, target: str) -> None:
    with contextlib.suppress(FileExistsError):
        os.link(source, target)
