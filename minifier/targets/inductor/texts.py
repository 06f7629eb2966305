"""Keeps what torch logs of its stages: graphs of Dynamo and AOTAutograd, IR and code of inductor.

Graphs and code come from torch's structured trace, which tlparse shows, and keep their names there.
The IR is what `TORCH_LOGS=ir_pre_fusion,ir_post_fusion` prints.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
from collections.abc import Callable, Iterator

from torch._inductor.debug import ir_post_fusion_log, ir_pre_fusion_log
from torch._logging._internal import trace_log

from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.events.schema import StageText
from tcdebug.minifier.trace.compile_direction import compile_direction
from tcdebug.minifier.trace.torch_trace import handler_added

TRACED = (
    "dynamo_output_graph",
    "before_pre_grad_graph",
    "after_pre_grad_graph",
    "aot_joint_graph",
    "aot_forward_graph",
    "aot_backward_graph",
    "aot_inference_graph",
    "before_joint_graph",
    "after_joint_graph",
    "before_post_grad_graph",
    "inductor_post_grad_graph",
    "inductor_output_code",
)
"""Trace records that hold the text of a stage. Others are about caches, guards and times."""

PRINTED = {"ir_pre_fusion": ir_pre_fusion_log, "ir_post_fusion": ir_post_fusion_log}

Keep = Callable[[str, str, str], None]
"""Called with a stage, its text and the suffix of its file."""


@contextlib.contextmanager
def texts_kept(log: EventLog) -> Iterator[None]:
    """Save the texts that compiles in this block log for their stages, each with an event."""
    numbers = itertools.count()

    def keep(stage: str, text: str, suffix: str) -> None:
        path = log.save(f"ir/{next(numbers):02}-{stage}.{suffix}", text)
        log.emit(StageText(path), stage=stage, direction=compile_direction())

    with contextlib.ExitStack() as stack:
        stack.enter_context(handler_added(trace_log, _Traced(keep)))
        for stage, logger in PRINTED.items():
            stack.enter_context(handler_added(logger, _Printed(stage, keep)))
        yield


class _Traced(logging.Handler):
    """Keeps records of torch's structured trace."""

    def __init__(self, keep: Keep) -> None:
        super().__init__()
        self._keep = keep

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a record: `metadata` is {kind: details}, and `payload` is a text."""
        kind, details = next(iter(record.__dict__["metadata"].items()))
        name = details.get("name") if kind == "artifact" else kind
        payload = record.__dict__["payload"]
        if name in TRACED and payload:
            self._keep(name, payload, "py")


class _Printed(logging.Handler):
    """Keeps what a logger of torch prints: a heading and a text."""

    def __init__(self, stage: str, keep: Keep) -> None:
        super().__init__()
        self._stage = stage
        self._keep = keep

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the text without its heading."""
        _, _, text = record.getMessage().partition("\n")
        self._keep(self._stage, text, "txt")
