"""Kernels as Python functions, with and without Python's headers."""

from __future__ import annotations

import sysconfig
import threading
import time
from pathlib import Path

import pytest
import torch

from tcdebug.compiler.codegen.wrapper.launches import Launch
from tcdebug.compiler.configuration.options import Options
from tcdebug.compiler.runtime.binding import Binding
from tcdebug.compiler.runtime.build import build
from tcdebug.compiler.runtime.toolchain import find

SOURCE = """
#include <stdint.h>
#include <unistd.h>
static double as_double(int64_t bits) { double v; __builtin_memcpy(&v, &bits, 8); return v; }
extern "C" int k(const int32_t* in, double* out, int64_t n, double scale, int threads) {
  if (threads == 9) {
    *out = 1.0;
    for (int tries = 0; !*(const volatile int32_t*)in; usleep(1000))
      if (++tries == 10000) return -1;
  }
  for (int64_t i = 0; i < n; ++i) out[i] = in[i] * scale;
  return threads;
}
extern "C" int k_packed(const int64_t* g) {
  return k((const int32_t*)g[0], (double*)g[1], (int64_t)g[2], as_double(g[3]), (int)g[4]);
}
extern "C" int add_one(double* to) { *to += 1; return 0; }
extern "C" int add_one_packed(const int64_t* g) { return add_one((double*)g[0]); }
"""
ALONE = Launch("run_k", "cpu", ("k",), (), "ttini", ((0, 1, 2, 3, 4),))


class Bound:
    """Binds launches of SOURCE."""

    def __init__(self, headers: Path | None) -> None:
        options = Options.from_env()
        toolchain = find("g++")
        self.library = build(SOURCE, toolchain, options.cache_dir).library
        self.binding = Binding(toolchain, options.cache_dir, headers)

    def __call__(self, launch: Launch, *given: object) -> int:
        return self.binding.function(self.library, launch)(*given)


@pytest.fixture(params=["headers", "ctypes"])
def run(request: pytest.FixtureRequest) -> Bound:
    return Bound(None if request.param == "headers" else Path("/nowhere"))


def test_addresses_sizes_and_numbers_reach_the_kernel(run: Bound) -> None:
    given, result = torch.tensor([1, 2, -3], dtype=torch.int32), torch.zeros(3, dtype=torch.double)
    assert run(ALONE, given, torch.nn.Parameter(result), 3, 0.5, 0) == 0
    assert result.tolist() == [0.5, 1.0, -1.5]


def test_headers_may_include_others_by_their_path_in_the_folder(tmp_path: Path) -> None:
    """The headers of Python 3.13 do."""
    headers = Path(sysconfig.get_path("include"))
    for entry in headers.iterdir():
        (tmp_path / entry.name).symlink_to(entry)
    (tmp_path / "Python.h").unlink()
    (tmp_path / "inner").mkdir()
    (tmp_path / "Python.h").write_text('#include "inner/outer.h"')
    (tmp_path / "inner" / "outer.h").write_text('#include "inner/Python.h"')
    (tmp_path / "inner" / "Python.h").write_text((headers / "Python.h").read_text())
    result = torch.zeros(1, dtype=torch.double)
    given = torch.tensor([4], dtype=torch.int32)
    assert Bound(tmp_path)(ALONE, given, result, 1, 0.5, 0) == 0
    assert result.item() == 2.0


def test_several_kernels_run_in_order_and_the_status_names_the_failed_one(run: Bound) -> None:
    given, result = torch.tensor([4], dtype=torch.int32), torch.zeros(1, dtype=torch.double)
    places = (0, 1, 2, 3, 4), (1,), (0, 1, 2, 3, 5), (1,)
    launch = Launch("launch_0", "cpu", ("k", "add_one") * 2, (), "ttinii", places)
    assert run(launch, given, result, 1, 0.5, 0, 0) == 0
    assert result.item() == 3.0
    assert run(launch, given, result, 1, 0.5, 0, 7) == 2 << 8 | 7
    assert result.item() == 2.0  # the last one did not run


def test_a_launch_takes_any_number_of_arguments(run: Bound) -> None:
    many = [torch.full((1,), float(k), dtype=torch.double) for k in range(600)]
    places = tuple((k,) for k in range(600))
    launch = Launch("launch_0", "cpu", ("add_one",) * 600, (), "t" * 600, places)
    assert run(launch, *many) == 0
    assert [t.item() for t in many] == [k + 1.0 for k in range(600)]


def test_other_threads_run_during_a_launch(run: Bound) -> None:
    may_end, begun = torch.zeros(1, dtype=torch.int32), torch.zeros(1, dtype=torch.double)
    status: list[int] = []
    thread = threading.Thread(target=lambda: status.append(run(ALONE, may_end, begun, 0, 1.0, 9)))
    thread.start()
    while not begun[0]:
        time.sleep(0.001)
    may_end[0] = 1
    thread.join()
    assert status == [9]


def test_a_bad_argument_is_a_python_error(run: Bound) -> None:
    x = torch.zeros(1, dtype=torch.double)
    with pytest.raises(TypeError):
        run(ALONE, 0, 0)
    wrapped: list[int] = []
    with pytest.raises(RuntimeError, match="data pointer"):
        torch.func.grad(lambda y: wrapped.append(run(ALONE, y, x, 0, 1.0, 0)))(x[0])
    with pytest.raises((TypeError, AttributeError)):
        run(ALONE, None, x, 0, 1.0, 0)
