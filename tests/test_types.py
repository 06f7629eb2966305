"""mypy --strict accepts the package under its import name, and the benchmarks."""

import os
import subprocess
import sys
from pathlib import Path

import platformdirs
from torch_versions import VERSION

ROOT = Path(__file__).parents[1]


def package_view(folder: Path) -> Path:
    """The three source folders under the name under which they are installed."""
    package = folder / "tcdebug"
    package.mkdir()
    for child in (ROOT / "toolkit").iterdir():
        (package / child.name).symlink_to(child)
    for name in ("compiler", "minifier"):
        (package / name).symlink_to(ROOT / name)
    return folder


def benchmark_modules() -> list[str]:
    """The arguments that name the benchmarks. No other test runs them."""
    files = sorted((ROOT / "tests" / "benchmarks").glob("*.py"))
    return [word for file in files for word in ("-m", file.stem)]


def untyped_calls() -> list[str]:
    """The arguments that allow calls of functions without types, which torch.fx had before 2.13.

    The comments that allow single calls are not needed then.
    """
    return ["--allow-untyped-calls", "--no-warn-unused-ignores"] if VERSION < "2.13" else []


def test_mypy_strict_finds_nothing(tmp_path: Path) -> None:
    cache = Path(platformdirs.user_cache_dir("tcdebug")) / "mypy"
    tests = ROOT / "tests"
    imported = [tests / "benchmarks", *tests.glob("**/support"), tests, ROOT]
    done = subprocess.run(
        [
            sys.executable, "-m", "mypy", "--strict", "--config-file", str(ROOT / "pyproject.toml"),
            "--cache-dir", str(cache), "--follow-imports", "silent", *untyped_calls(),
            "-p", "tcdebug", *benchmark_modules(),
        ],
        cwd=package_view(tmp_path),
        env={**os.environ, "MYPYPATH": os.pathsep.join(map(str, imported))},
        capture_output=True,
        text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
