"""Views that AOTAutograd recreates: outputs that alias inputs, and inputs that share one base.

If such a view is switched off, it is created from its sizes, strides and offset alone, without the
view operators or the function that torch has recorded for it.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch._dynamo  # the file with these functions must be imported after it
from torch._subclasses.fake_tensor import FakeTensor

from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.gate.gate import Gate
from tcdebug.compiler.patching import Patch, patched

OUTPUT = "autograd.output_alias"
BASE = "autograd.synthetic_base"

REGENERATED = Patch(
    "torch._functorch._aot_autograd.runtime_wrappers",
    "gen_alias_from_base",
    f"{OUTPUT} and {BASE} cannot be switched off",
    takes=("aliased_base_tensor", "target_meta_tensor", "target_requires_grad"),
)
PATCHES = (REGENERATED,)

Function = Callable[..., Any]


@contextlib.contextmanager
def aliases(gate: Gate, log: EventLog) -> Iterator[None]:
    """Ask about each recreated view once, however often its graph is traced or called."""
    answers: dict[tuple[str, str], bool] = {}

    def allowed(unit: str, subject: str) -> bool:
        if (unit, subject) not in answers:
            answers[unit, subject] = gate.allows(unit, subject)
        return answers[unit, subject]

    def asking(original: Function) -> Function:
        @functools.wraps(original)
        def alias(base: Any, target: Any, requires_grad: bool, *args: Any, **kwargs: Any) -> Any:
            unit = BASE if isinstance(target, FakeTensor) else OUTPUT
            if _is_strided(base, target) and not allowed(unit, _subject(base, target)):
                return _strided(base, target, requires_grad)
            return original(base, target, requires_grad, *args, **kwargs)

        return alias

    with patched(REGENERATED, asking, log):
        yield


def _is_strided(base: Any, target: Any) -> bool:
    """Return whether sizes, strides and offset describe a view completely."""
    plain = all(
        type(t) is not torch.nn.Parameter and t.layout == torch.strided for t in (base, target)
    )
    return (
        plain
        and base.dtype == target.dtype
        and base.is_conj() == target.is_conj()
        and base.is_neg() == target.is_neg()
    )


def _strided(base: Any, target: Any, requires_grad: bool) -> Any:
    """Create the view. It requires gradients if the output of eager does."""
    view = base.as_strided(target.size(), target.stride(), target.storage_offset())
    if base.requires_grad and not requires_grad:
        return view.detach()
    if requires_grad and not base.requires_grad:
        view.requires_grad_(True)
    return view


def _subject(base: Any, target: Any) -> str:
    """Describe a view and its base by sizes, strides and offset."""
    return f"{_layout(target)} of {_layout(base)}"


def _layout(tensor: Any) -> str:
    sizes, strides = (", ".join(map(str, part)) for part in (tensor.size(), tensor.stride()))
    return f"[{sizes}] strides [{strides}] offset {tensor.storage_offset()}"
