"""Measures the cost of logging: python tests/benchmarks/logging_overhead.py [rounds]

Needs `pip install -e '.[benchmarks]'`.
Compiles forward and backward of a toy Llama with two layers, with kernels that are built, as in a
first run, and with cached kernels. Everything that only logging calls is timed where it is called,
in the same compile, so that other work on the machine cancels out.
"""

from __future__ import annotations

import contextlib
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch._logging import _internal
from transformers import LlamaConfig, LlamaForCausalLM

from tcdebug.compiler import pipeline
from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.stages.graph_text import GraphText
from tcdebug.minifier.trace.torch_trace import traced

ONLY_FOR_LOGS = (
    (EventLog, "emit"),
    (EventLog, "save"),
    (GraphText, "write"),
    (pipeline, "print_graph"),
    (pipeline, "print_schedule"),
    (pipeline, "_report_remarks"),
    (pipeline, "origins"),
    (_internal.trace_log, "debug"),
)
"""Functions that are called only for the log; for torch's trace, its records."""


class Clock:
    """CPU-seconds inside the timed functions. Nested calls count once."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.calls = 0
        self._inside = False

    def timed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, timed."""

        def call(*args: Any, **kwargs: Any) -> Any:
            if self._inside:
                return function(*args, **kwargs)
            self._inside = True
            began = time.thread_time()
            try:
                return function(*args, **kwargs)
            finally:
                self.seconds += time.thread_time() - began
                self.calls += 1
                self._inside = False

        return call


@contextlib.contextmanager
def clocked() -> Iterator[Clock]:
    """Time everything that logging calls in this block."""
    clock = Clock()
    with contextlib.ExitStack() as stack:
        for owner, name in ONLY_FOR_LOGS:
            original = getattr(owner, name, None)
            if original is not None:
                setattr(owner, name, clock.timed(original))
                stack.callback(setattr, owner, name, original)
        yield clock


def model() -> Any:
    """A Llama with two layers of 64."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=256, hidden_size=64, intermediate_size=128, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64,
    )  # fmt: skip
    return LlamaForCausalLM(config)


def cpu() -> float:
    """CPU seconds of this process and of the C++ compilers it has waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + used.ru_utime + used.ru_stime


def measured(
    folder: Path, *, trace: bool = False, artifacts: bool = True, built: bool = False
) -> tuple[float, float, int]:
    """CPU-seconds of a compile, those for the log, and the number of calls of the log."""
    torch._dynamo.reset()
    network, tokens = model(), torch.randint(0, 256, (2, 16))
    options: dict[str, Any] = {"run_dir": str(folder), "artifacts": artifacts}
    if built:
        options["cache_dir"] = str(folder / "kernels")
    with contextlib.ExitStack() as stack:
        if trace:
            stack.enter_context(traced(EventLog(folder)))
        clock = stack.enter_context(clocked())
        step = torch.compile(network, backend="tcdebug", options=options)
        began = cpu()
        step(tokens, labels=tokens).loss.backward()  # type: ignore[no-untyped-call] # of transformers
        return cpu() - began, clock.seconds, clock.calls


WAYS: dict[str, dict[str, bool]] = {
    "default, kernels built": {"built": True},
    "default, kernels cached": {},
    "events alone, kernels cached": {"artifacts": False},
    "tcdebug run, kernels built": {"trace": True, "built": True},
}


def main() -> None:
    """Measure the cases alternately, and print the median of each."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    torch.set_num_threads(1)
    found: dict[str, list[tuple[float, float, int]]] = {name: [] for name in WAYS}
    with tempfile.TemporaryDirectory() as base:
        for number in range(rounds + 1):
            for k, (name, way) in enumerate(WAYS.items()):
                folder = Path(base) / f"{k}-{number}"
                folder.mkdir()
                result = measured(folder, **way)
                if number:  # the first one imports, and builds kernels
                    found[name].append(result)
    for name, results in found.items():
        share = statistics.median(100 * log / whole for whole, log, _ in results)
        whole = statistics.median(whole for whole, _, _ in results)
        line = f"{name:<30} {share:4.1f} % of {whole:.2f} CPU-s, {results[0][2]} calls\n"
        sys.stdout.write(line)


if __name__ == "__main__":
    main()
