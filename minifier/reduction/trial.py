"""Try an edit before it is asked for: whether its calls can be made, and what shape they give.

Candidates are run on fake tensors, which have no data: an operator that would end the process on
strange sizes ends nothing here, and it takes no time.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext

from tcdebug.minifier.cases.ambient import restored
from tcdebug.minifier.cases.case import Case, clone_values, tensors_of
from tcdebug.minifier.cases.placement import evaluated
from tcdebug.minifier.reduction.operators.surgery import is_batched


@dataclass(frozen=True)
class Observed:
    """What the nodes of a case give, by name: fake tensors, numbers, and tuples of them."""

    values: Mapping[str, Any]
    _mode: FakeTensorMode
    _case: Case

    def result(
        self, target: Callable[..., Any] | str, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Any:
        """What a call would give whose arguments have these nodes, None where it fails."""
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
            with _trying(self._mode, self._case):
                function = getattr(known[0], target) if isinstance(target, str) else target
                return function(*(known[1:] if isinstance(target, str) else known), **named)
        except Exception:  # whatever an operator says to arguments that it does not take
            return None


def observed(case: Case) -> Observed:
    """What the nodes of a case give in eager.

    Left out are values inside a vmap, and those of which there are no fake ones: sparse tensors.
    """
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    watcher = _RegionWatcher(case.module, mode)
    with restored(), torch.no_grad(), evaluated(case):
        watcher.run(*clone_values(case.values()))
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
        return self._mode.from_tensor(value) if isinstance(value, torch.Tensor) else value


@contextlib.contextmanager
def _trying(mode: FakeTensorMode, case: Case) -> Iterator[None]:
    """Calls on fake tensors; torch logs an error when one fails, and many trials do."""
    logger = logging.getLogger(FakeTensorMode.__module__)
    disabled, logger.disabled = logger.disabled, True
    try:
        with restored(), torch.no_grad(), mode, evaluated(case):
            yield
    finally:
        logger.disabled = disabled


def same_kind(one: Any, other: Any) -> bool:
    """Whether two values are tensors of one shape and dtype."""
    return (
        isinstance(one, torch.Tensor)
        and isinstance(other, torch.Tensor)
        and one.dtype == other.dtype
        and one.shape == other.shape
    )


def can_run(candidate: Case, original: Case) -> bool:
    """Whether eager can run a case, as far as shapes and dtypes say.

    Where fake tensors cannot run the original either, the data decides, and an ask has to tell.
    """
    return _runs(candidate) or not _runs(original)


def size_names(case: Case) -> dict[str, tuple[str, ...]]:
    """The sizes of the inputs as what they stand for: those with one name have to be equal.

    A size that has to be some number is that number. Nothing where the graph does not run so.
    """
    mode = FakeTensorMode(shape_env=ShapeEnv(duck_shape=False), allow_non_fake_inputs=True)
    fakes: dict[str, Any] = {}
    try:
        with _trying(mode, case):
            for spec in case.inputs:
                value = spec.value
                if isinstance(value, torch.Tensor):
                    value = mode.from_tensor(value, symbolic_context=_free(value.ndim))
                fakes[spec.name] = value
            fx.Interpreter(case.module).run(*fakes.values())
    except Exception:  # as above, or a number that only the data gives
        return {}
    return {
        name: tuple(map(str, fake.shape))
        for name, fake in fakes.items()
        if isinstance(fake, torch.Tensor)
    }


def _free(dimensions: int) -> StatelessSymbolicContext[Any, Any]:
    return StatelessSymbolicContext([DimDynamic.DYNAMIC] * dimensions)


def _runs(case: Case) -> bool:
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    try:
        with _trying(mode, case):
            values = fx.node.map_aggregate(
                case.values(), lambda v: mode.from_tensor(v) if isinstance(v, torch.Tensor) else v
            )
            fx.Interpreter(case.module).run(*values)
    except Exception:  # whatever an operator says to arguments that it does not take
        return False
    return True
