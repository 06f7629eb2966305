"""Runs an edited graph on fake tensors, to see whether it runs and with which shapes.

Fake tensors have no data, so a trial is fast, and an operator that would crash the process on
unusual sizes cannot do so.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext

from tcdebug.minifier.cases.ambient import restored
from tcdebug.minifier.cases.case import Case, clone_values, tensors_of
from tcdebug.minifier.cases.placement import devices, evaluated
from tcdebug.minifier.reduction.operators.surgery import is_batched
from tcdebug.minifier.reduction.operators.transforms import gradients_of_its_own


@dataclass(frozen=True)
class Observed:
    """The values of a case's nodes by name: fake tensors, numbers, and tuples of them."""

    values: Mapping[str, Any]
    _mode: FakeTensorMode
    _case: Case

    def result(
        self, target: Callable[..., Any] | str, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Any:
        """Return what a call on the values of these nodes would give; None if it fails."""
        unknown = False

        def value(node: fx.Node) -> Any:
            nonlocal unknown
            unknown = unknown or node.name not in self.values
            return self.values.get(node.name)

        known = fx.node.map_arg(tuple(args), value)
        named = fx.node.map_arg(dict(kwargs), value)
        if unknown:
            return None
        try:
            with _fake_mode(self._mode, self._case):
                function = getattr(known[0], target) if isinstance(target, str) else target
                return function(*(known[1:] if isinstance(target, str) else known), **named)
        except Exception:  # an operator may raise anything for arguments it does not accept
            return None


def observed(case: Case) -> Observed:
    """Return the values that the nodes of a case have in eager.

    Left out are values inside a transform, and values without a fake counterpart: sparse tensors.
    If a case of a device cannot run on the CPU, which kernels of the program may prevent, numbers
    that depend on the contents of tensors are left out too.
    """
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    watcher = _RegionWatcher(case.module, mode)
    try:
        with restored(), gradients_of_its_own(case.graph), evaluated(case):
            watcher.run(*clone_values(case.values()))
    except Exception:
        if not devices(case):
            raise
        return observed_without_memory(case)
    return Observed(watcher.values, mode, case)


def observed_without_memory(case: Case) -> Observed:
    """Return the values of nodes for inputs that are fake tensors. It may raise anything."""
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    watcher = _RegionWatcher(case.module, mode)
    with _fake_mode(mode, case):
        values = fx.node.map_aggregate(case.values(), lambda v: _as_fake(v, mode))
        watcher.run(*values)
    return Observed(watcher.values, mode, case)


class _RegionWatcher(fx.Interpreter):
    def __init__(self, module: fx.GraphModule, mode: FakeTensorMode) -> None:
        super().__init__(module)
        self.values: dict[str, Any] = {}
        self._mode = mode

    def run_node(self, n: fx.Node) -> Any:
        result = super().run_node(n)
        if not any(map(is_batched, tensors_of(result))):
            with contextlib.suppress(Exception):
                self.values[n.name] = fx.node.map_aggregate(result, self._fake)
        return result

    def _fake(self, value: Any) -> Any:
        return _as_fake(value, self._mode)


@contextlib.contextmanager
def _fake_mode(mode: FakeTensorMode, case: Case) -> Iterator[None]:
    """Run calls on fake tensors. torch's error log is off, because many trials fail."""
    logger = logging.getLogger(FakeTensorMode.__module__)
    disabled, logger.disabled = logger.disabled, True
    try:
        with restored(), gradients_of_its_own(case.graph), mode, evaluated(case):
            yield
    finally:
        logger.disabled = disabled


def same_kind(one: Any, other: Any) -> bool:
    """Return whether two values are tensors of the same shape and dtype."""
    return (
        isinstance(one, torch.Tensor)
        and isinstance(other, torch.Tensor)
        and one.dtype == other.dtype
        and one.shape == other.shape
    )


def can_run(candidate: Case, original: Case) -> bool:
    """Return whether eager can run a case, judged by shapes and dtypes.

    If the original does not run on fake tensors either, the data decides, and the answer is True.
    """
    return _runs(candidate) or not _runs(original)


def size_names(case: Case) -> dict[str, tuple[str, ...]]:
    """Name the sizes of the inputs. Sizes with the same name must be equal.

    A size that must be a certain number has that number as its name. The result is empty if the
    graph does not run on symbolic sizes.
    """
    mode = FakeTensorMode(shape_env=ShapeEnv(duck_shape=False), allow_non_fake_inputs=True)
    fakes: dict[str, Any] = {}
    try:
        with _fake_mode(mode, case):
            for spec in case.inputs:
                value = spec.value
                if isinstance(value, torch.Tensor):
                    value = mode.from_tensor(value, symbolic_context=_all_dynamic(value.ndim))
                fakes[spec.name] = value
            fx.Interpreter(case.module).run(*fakes.values())
    except Exception:  # an operator rejects its arguments, or needs a number from the data
        return {}
    return {
        name: tuple(map(str, fake.shape))
        for name, fake in fakes.items()
        if isinstance(fake, torch.Tensor)
    }


def _all_dynamic(dimensions: int) -> StatelessSymbolicContext[Any, Any]:
    return StatelessSymbolicContext([DimDynamic.DYNAMIC] * dimensions)


def _runs(case: Case) -> bool:
    try:
        observed_without_memory(case)
    except Exception:  # an operator may raise anything for arguments it does not accept
        return False
    return True


def _as_fake(value: Any, mode: FakeTensorMode) -> Any:
    if isinstance(value, FakeTensor) or not isinstance(value, torch.Tensor):
        return value
    return mode.from_tensor(value)
