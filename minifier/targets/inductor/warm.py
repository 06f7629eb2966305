"""Sets up once what a first compile by inductor would set up in every forked candidate."""

from __future__ import annotations

import gc
from pathlib import Path

import torch
from torch._inductor import config
from torch._inductor.codecache import torch_key
from torch._inductor.compile_fx import compile_fx
from torch._inductor.fx_passes import joint_graph, post_grad, pre_grad
from torch._inductor.runtime.cache_dir_utils import cache_dir

from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.events.schema import Fallback
from tcdebug.minifier.cases.settings import changed, set_back
from tcdebug.minifier.processes.fork import Notify, fork
from tcdebug.minifier.processes.partial_objects import remove_torn
from tcdebug.minifier.processes.process import Limits, finished
from tcdebug.minifier.targets.inductor import vector_instructions
from tcdebug.minifier.targets.inductor.settings import (
    CONFIG,
    UNCACHED,
    uncached,
)


def register() -> None:
    """Register inductor's patterns, without compiling anything."""
    with config.patch(compile_threads=1):
        for module in (pre_grad, joint_graph, post_grad):
            module.lazy_init()


def register_before_forks() -> None:
    """Register inductor's patterns in a process whose forks run scripts.

    On a machine with a GPU this is left to the forks: it would initialise CUDA, which no fork could
    use then.
    """
    if not torch.cuda.device_count():
        register()


def set_up() -> None:
    """Do what a first compile does before it looks at its graph, without compiling anything."""
    register_before_forks()
    torch_key()  # reads all of torch's files
    vector_instructions.pick()


def _try_to_register(log: EventLog) -> None:
    """Register patterns here if tracing works at this point of the script, else in candidates."""
    try:
        register()
    except Exception as problem:
        what = f"{type(problem).__name__}: {problem}"
        log.emit(Fallback("warm-up", f"inductor's patterns could not be registered: {what}"))


def warm_up(log: EventLog) -> None:
    """Detect the vector instructions and compile a graph, which fills caches of this process.

    The compile is first tried in a child, because patches of the script may break any compile.
    """
    _try_to_register(log)
    remove_torn(Path(cache_dir()))
    others = {name: v for name, v in changed(CONFIG).items() if name != vector_instructions.SETTING}
    with set_back(CONFIG, {**others, **UNCACHED}, EventLog(None)):
        vector_instructions.pick()

    def work(notify: Notify) -> bytes:
        _compile_one()
        return b"compiled"

    if finished(fork(work, Limits())).answer is None:
        log.emit(Fallback("warm-up", "inductor cannot compile even a small sum"))
    else:
        _compile_one()


def warm_up_for_devices(log: EventLog) -> None:
    """Set up what a first compile for a GPU needs, without a GPU or a C++ compiler."""
    _try_to_register(log)
    torch_key()  # reads all of torch's files
    with torch.no_grad():
        try:
            torch.compile(_small_sum, backend="aot_eager_decomp_partition")(torch.ones(2, 2))
        except Exception as problem:  # patches of the script may break any compile
            log.emit(Fallback("warm-up", f"a small sum could not be captured: {problem}"))
    torch._dynamo.reset()


class _Small(torch.nn.Module):
    """A module with a parameter. Creating it draws no random numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(2, 2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Multiply by the parameter."""
        return torch.relu(x * self.weight)


def warm_up_scripts(backend: str) -> None:
    """Compile a small module here, so that forks which run scripts need not set Dynamo up.

    With inductor, a kernel is built too. No thread is started, since none would survive a fork.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.no_grad(), uncached(EventLog(None)):
            torch.compile(_Small(), backend=backend)(torch.ones(2, 2))
    finally:
        torch.set_num_threads(threads)
    torch._dynamo.reset()
    gc.collect()
    gc.freeze()  # forks need not copy what the collector would mark


def _small_sum(x: torch.Tensor) -> torch.Tensor:
    return (x * 2 + 1).sum(-1)


def _compile_one() -> None:
    """Compile a small sum with torch's own settings. Without gradients no thread is started."""
    with (
        set_back(CONFIG, changed(CONFIG), EventLog(None)),
        uncached(EventLog(None)),
        torch.no_grad(),
    ):
        torch.compile(_small_sum, backend=compile_fx)(torch.ones(2, 2))
