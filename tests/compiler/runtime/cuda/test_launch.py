"""Launches without a GPU: which variant of a kernel is needed, and which launches fail early."""

from __future__ import annotations

import ctypes
import sysconfig
from pathlib import Path

import pytest

from tcdebug.compiler.configuration.options import Options
from tcdebug.compiler.errors.exceptions import KernelError
from tcdebug.compiler.runtime.cuda import launch
from tcdebug.compiler.runtime.cuda.launch import MISSING, KernelTable, Launcher, Variant

HEADERS = Path(sysconfig.get_path("include"))


@pytest.fixture(scope="module", params=["binding", "array"])
def launcher(request: pytest.FixtureRequest) -> Launcher:
    """A launcher without a driver, with and without Python's headers."""
    headers = HEADERS if request.param == "binding" else Path("/nowhere")
    options = Options.from_env()
    made = Launcher.__new__(Launcher)
    made.open(headers, options.compiler, options.cache_dir)
    return made


def table(**counts: int) -> KernelTable:
    return KernelTable(xblock=64, yblock=1, **counts)


def test_a_variant_that_is_not_loaded_is_missing_and_nothing_runs(launcher: Launcher) -> None:
    kernel = table(pointers=2, sizes=1)
    run = launcher.function(kernel)
    assert run(0, 0, 100, 1, 1, 16, 32, 48) == MISSING
    assert run(0, 1, 100, 1, 1, 16, 32, 48) == MISSING


@pytest.mark.parametrize(
    ("wide", "given", "version"),
    [
        (0, (16, 32, 48), 0b011),
        (0, (16, 32, 47), 0b010),
        (0, (16, 36, 48), 0b001),
        (0, (17, 32, 47), 0b000),
        (1, (16, 32, 48), 0b111),
    ],
)
def test_a_variant_is_chosen_by_the_divisibility_of_addresses_and_sizes(
    launcher: Launcher, wide: int, given: tuple[int, ...], version: int
) -> None:
    kernel = table(pointers=2, sizes=1)
    assert launcher.variant(kernel, wide, given) == version
    kernel.variants[version] = Variant(1, 32, 0)
    run = launcher.function(kernel)
    assert run(0, wide, 0, 1, 1, *given) == 0  # the variant exists, and there is nothing to launch
    assert run(0, wide, 0, 1, 1, *(g + 1 for g in given)) == MISSING


def test_a_grid_that_is_too_large_is_rejected(launcher: Launcher) -> None:
    kernel = table(pointers=1)
    kernel.variants[0b011] = Variant(1, 32, 0)
    assert launcher.function(kernel)(0, 0, 1 << 40, 1, 1, 16) == launch.TOO_MANY_PROGRAMS
    assert "more programs" in launcher.error(launch.TOO_MANY_PROGRAMS)


def test_numbers_are_passed_after_sizes(launcher: Launcher) -> None:
    kernel = table(pointers=1, sizes=1, numbers=2)
    kernel.variants[0b011] = Variant(1, 32, 0)
    assert launcher.function(kernel)(0, 0, 0, 1, 1, 16, 32, 0.5, 2.0) == 0


def test_a_wrong_number_of_arguments_is_a_python_error() -> None:
    made = Launcher.__new__(Launcher)
    options = Options.from_env()
    made.open(HEADERS, options.compiler, options.cache_dir)
    kernel = table(pointers=2)
    with pytest.raises(TypeError, match="a launch takes 7 arguments, not 2"):
        made.function(kernel)(0, 0)
    with pytest.raises(TypeError):
        made.function(kernel)(0, 0, 1, 1, 1, "a", 2)


def test_a_missing_driver_is_an_error() -> None:
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        with pytest.raises(KernelError, match="no NVIDIA driver"):
            Launcher("g++", Options.from_env().cache_dir)
