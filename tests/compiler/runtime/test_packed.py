"""Kernels as Python functions, with Python's headers and without."""

from __future__ import annotations

import ctypes
import threading
import time
from pathlib import Path

import pytest
from programs import f32
from stages import capture

from tcdebug.compiler.codegen.call import KernelCall
from tcdebug.compiler.options import Options
from tcdebug.compiler.runtime.build import build
from tcdebug.compiler.runtime.packed import Binding
from tcdebug.compiler.runtime.toolchain import find

SOURCE = """
#include <stdint.h>
#include <unistd.h>
static double as_double(int64_t bits) { double v; __builtin_memcpy(&v, &bits, 8); return v; }
extern "C" int k(const int32_t* in, double* out, int64_t n, double scale, int threads) {
  if (threads == 9) usleep(300000);
  for (int64_t i = 0; i < n; ++i) out[i] = in[i] * scale;
  return threads;
}
extern "C" int k_packed(const int64_t* g) {
  return k((const int32_t*)g[0], (double*)g[1], (int64_t)g[2], as_double(g[3]), (int)g[4]);
}
"""


@pytest.fixture(params=["headers", "ctypes"])
def run(request: pytest.FixtureRequest):  # type: ignore[no-untyped-def] # a function of any numbers
    options = Options.from_env()
    toolchain = find("g++")
    headers = None if request.param == "headers" else Path("/nowhere")
    library = build(SOURCE, toolchain, options.cache_dir).library
    (schedule,) = capture(lambda x: x + 1, f32(2)).schedules
    (kernel,) = schedule.kernels()
    kernel = type(kernel)("k", kernel.outer, kernel.inner, kernel.nodes, kernel.stored)
    call = KernelCall(kernel, ("a",), ("b",), ("n",), ("scale",), 0, {}, after=("threads",))
    return Binding(toolchain, options.cache_dir, headers).function(library, call)


def test_addresses_sizes_and_numbers_reach_the_kernel(run) -> None:  # type: ignore[no-untyped-def] # as above
    given, result = (ctypes.c_int32 * 3)(1, 2, -3), (ctypes.c_double * 3)()
    status = run(ctypes.addressof(given), ctypes.addressof(result), 3, 0.5, 2)
    assert (status, list(result)) == (2, [0.5, 1.0, -1.5])


def test_other_threads_run_meanwhile(run) -> None:  # type: ignore[no-untyped-def] # as above
    ended: list[float] = []
    thread = threading.Thread(target=lambda: ended.append(run(0, 0, 0, 1.0, 9) and time.time()))
    thread.start()
    time.sleep(0.05)
    here = time.time()
    thread.join()
    assert here < ended[0]


def test_a_wrong_number_of_arguments_is_an_error_of_python(run) -> None:  # type: ignore[no-untyped-def] # as above
    with pytest.raises(TypeError):
        run(0, 0)
