"""The program under construction, and the draws for its next line.

Each line runs in eager as it is drawn. The next line is therefore drawn for the actual dtypes,
sizes and strides.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import torch
from hypothesis import reject
from hypothesis import strategies as st
from torch.autograd.graph import saved_tensors_hooks

from tcdebug.strategies.arguments import LAYOUTS, PLAIN, ArgumentRecipe, dtypes_in, recipe
from tcdebug.strategies.devices import CPU, SMALL, Extents
from tcdebug.strategies.program import Argument, ProgramStep

T = TypeVar("T")

TWICE = 15
"""If this number is drawn for an operand, one tensor is passed to the program twice."""
NO_DERIVATIVE = "torch::autograd::NotImplemented"
"""autograd's name for the node of an operation without a derivative."""
INPUTS = 8
"""How many inputs are drawn for an operand until one is suitable."""
NEAR = 3
"""Operands are chosen among this many of the newest values."""


@dataclass(frozen=True)
class ScopeValue:
    """A value of the program. If it is `exact`, it is not rounded, so compiled must be equal."""

    name: str
    tensor: torch.Tensor
    exact: bool

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Want:
    """Requirements on an operand: kinds (see `DTYPES`), dimensions, and others."""

    kinds: str = "fhib"
    least: int = 0
    most: int = 4
    nonempty: bool = False
    plain: bool = False
    """Whether the operand must be contiguous."""
    accept: Callable[[torch.Tensor], bool] = lambda tensor: True

    def fits(self, tensor: torch.Tensor) -> bool:
        """Return whether a tensor meets the requirements."""
        return (
            tensor.dtype in dtypes_in(self.kinds)
            and self.least <= tensor.dim() <= self.most
            and not (self.nonempty and tensor.numel() == 0)
            and not (self.plain and not tensor.is_contiguous())
            and self.accept(tensor)
        )


@dataclass
class Scope:
    """The program so far. Rows of the tables call its methods to draw what they need."""

    draw: Callable[[st.SearchStrategy[Any]], Any]
    gradients: bool = False
    stretched: tuple[int, int] | None = None
    """A size of the first call, and the size in its place in the second call."""
    device: str = CPU
    """Where the program runs. While it is drawn, its lines run on the CPU."""
    extents: Extents = SMALL
    values: list[ScopeValue] = field(default_factory=list)
    arguments: list[Argument] = field(default_factory=list)
    steps: list[ProgramStep] = field(default_factory=list)
    operands: list[ScopeValue] = field(default_factory=list)
    """The operands of the current line."""
    shared: set[int] = field(default_factory=set)
    """Memory that two different inputs share."""
    saved: dict[int, torch.Tensor] = field(default_factory=dict)
    """Memory that backward reads, by address. A program that writes to it has no backward."""
    in_eager: dict[str, str] = field(default_factory=dict)
    """What is evaluated in place of a line that torch would compile, with the same result."""

    # -- choices ----------------------------------------------------------------------------

    def choose(self, options: Sequence[T]) -> T:
        """Return one of several options. The first is the simplest."""
        chosen: T = self.draw(st.sampled_from(options))
        return chosen

    def integer(self, low: int, high: int) -> int:
        """Return a number in a closed range. The nearest to zero is the simplest."""
        chosen: int = self.draw(st.integers(low, high))
        return chosen

    def flag(self) -> bool:
        """Return a boolean. False is the simplest."""
        return bool(self.draw(st.booleans()))

    def size(self, *, nonempty: bool = False) -> int:
        """Return the size of a dimension."""
        options = tuple(s for s in self.extents.sizes if s or not nonempty)
        if self.stretched is not None:
            options = (self.stretched[0], self.stretched[0], self.stretched[0], *options)
        return self.choose(options)

    @property
    def most_elements(self) -> int:
        """The maximum number of elements of a tensor."""
        return self.extents.most_elements

    def dim(self, value: ScopeValue) -> int:
        """Return a dimension of a tensor that has one, counted from the end."""
        return self.integer(-value.tensor.dim(), -1)

    def dims(self, value: ScopeValue) -> tuple[int, ...]:
        """Return one or more dimensions of a tensor that has one."""
        first = self.dim(value)
        return (first, *(d for d in range(-value.tensor.dim(), first) if self.flag()))

    # -- operands ---------------------------------------------------------------------------

    def operand(self, want: Want) -> ScopeValue:
        """Return a suitable value of the program, or a new input.

        Without a suitable one, Hypothesis discards the program.
        """
        found = self._existing(want)
        for _ in range(INPUTS):
            if found is not None:
                return found
            found = self._suitable_input(want)
        reject()

    def beside(self, other: ScopeValue, kinds: str = "fhib") -> ScopeValue:
        """Return an operand that can be broadcast with another one."""
        shape = other.tensor.shape

        def fits(tensor: torch.Tensor) -> bool:
            pairs = list(zip(reversed(tensor.shape), reversed(shape), strict=False))
            sizes = [max(a, b) for a, b in pairs] or [1]
            small = torch.Size(sizes).numel() <= self.most_elements
            return small and all(a == b or 1 in (a, b) for a, b in pairs)

        found = self._existing(Want(kinds, accept=fits))
        if found is not None:
            return found
        kept = [1 if n != 1 and self.integer(0, 5) == 5 else n for n in shape]
        return self.new_input(tuple(kept[self.integer(0, len(shape)) :]), kinds)

    def alike(self, other: ScopeValue) -> ScopeValue:
        """Return an operand with the size and dtype of another one."""
        shape, dtype = other.tensor.shape, other.tensor.dtype
        want = Want("fhibc", 0, 8, accept=lambda t: t.shape == shape and t.dtype == dtype)
        fitting = self._fitting(want)
        return self._use(fitting[self.integer(0, len(fitting) - 1)])

    def indices(self, sizes: Sequence[int], bound: int) -> ScopeValue:
        """Return a new input of integers below a bound, some of them repeated."""
        return self.new_input(tuple(sizes), "i", bound=bound)

    def _suitable_input(self, want: Want) -> ScopeValue | None:
        """Return a new argument of the program, or None if what was drawn does not suit."""
        text, second = self._input_texts(self._sizes(want), want.kinds, plain=want.plain)
        return self._argument(text, second) if want.fits(self.evaluate(text)) else None

    def new_input(
        self, sizes: tuple[int, ...], kinds: str, *, bound: int | None = None
    ) -> ScopeValue:
        """Return a new argument of the program."""
        return self._argument(*self._input_texts(sizes, kinds, bound=bound))

    def _input_texts(
        self, sizes: tuple[int, ...], kinds: str, *, bound: int | None = None, plain: bool = False
    ) -> tuple[str, str]:
        """Draw the expressions of an input for the first and the second call."""
        made = recipe(
            self, sizes, kinds, LAYOUTS[:1] if plain else LAYOUTS, gradients=self.gradients,
            bound=bound, on_device=self.device != CPU,
        )  # fmt: skip
        return made.text(sizes), made.text(self._stretch(sizes))

    def alias(self, value: ScopeValue, text: str) -> ScopeValue:
        """Return a new argument that is a view of an existing one, or the same tensor."""
        if text != value.name:
            self.shared.add(value.tensor.untyped_storage().data_ptr())
        return self._argument(text, text, value.exact)

    def _argument(self, text: str, second: str, exact: bool = True) -> ScopeValue:
        name = f"a{len(self.arguments)}"
        value = ScopeValue(name, self.evaluate(text), exact)
        self.arguments.append(Argument(name, text, second))
        self.values.append(value)
        return self._use(value)

    def _existing(self, want: Want) -> ScopeValue | None:
        """Return one of the newest suitable values, or None if a new input is wanted.

        The simplest choice draws nothing more, whatever values exist. If a shrinker removes the
        line that computed an operand, later lines keep their meaning.
        """
        fitting = self._fitting(want)
        place = self.integer(0, 15)
        if fitting and place == TWICE and fitting[0].name.startswith("a"):
            return self.alias(fitting[0], fitting[0].name)
        if fitting and place < 12:
            return self._use(fitting[place % len(fitting)])
        return None if place or fitting else self._plainest(want)

    def _plainest(self, want: Want) -> ScopeValue | None:
        """Return a new input of one element, if that is suitable."""
        dtype, on_device = dtypes_in(want.kinds)[0], self.device != CPU
        made = ArgumentRecipe(dtype, "ones", PLAIN, 0, False, None, on_device)
        text = made.text((1,) * want.least)
        return self._argument(text, text) if want.fits(self.evaluate(text)) else None

    def _fitting(self, want: Want) -> list[ScopeValue]:
        return [v for v in reversed(self.values) if want.fits(v.tensor)][:NEAR]

    def _sizes(self, want: Want) -> tuple[int, ...]:
        """Return the sizes of a new tensor."""
        count = self.integer(want.least, min(want.most, max(want.least, 3)))
        sizes = tuple(self.size(nonempty=want.nonempty) for _ in range(count))
        if torch.Size(sizes).numel() > self.most_elements:
            longest = len(sizes) - 1 if self.device == CPU else sizes.index(max(sizes))
            return tuple(s if k == longest else min(s, 4) for k, s in enumerate(sizes))
        return sizes

    def _stretch(self, sizes: tuple[int, ...]) -> tuple[int, ...]:
        if self.stretched is None:
            return sizes
        before, after = self.stretched
        return tuple(after if s == before else s for s in sizes)

    def _use(self, value: ScopeValue) -> ScopeValue:
        self.operands.append(value)
        return value

    # -- lines ------------------------------------------------------------------------------

    def evaluate(self, text: str) -> Any:
        """Evaluate an expression over the values so far in eager, on the CPU."""
        values = {v.name: v.tensor for v in self.values}
        return eval(text, {"torch": torch, "device": CPU, **values})

    def add(self, op: str, text: str, exact: bool) -> None:
        """Run a line in eager and add its result. Raises what eager raises."""
        with torch.compiler.set_stance("force_eager"), self._saving():
            made = self.evaluate(self.in_eager.pop(text, text))
        if made.grad_fn is not None and made.grad_fn.name() == NO_DERIVATIVE:
            text, made = f"({text}).detach()", made.detach()
        exact = exact and all(v.exact for v in self.operands)
        value = ScopeValue(f"v{len(self.steps)}", made, exact)
        names = tuple(dict.fromkeys(v.name for v in self.operands))
        self.steps.append(ProgramStep(value.name, text, op, names))
        if not value.exact:
            self.values = [
                replace(v, exact=v.exact and not share_memory(v, value)) for v in self.values
            ]
        self.values.append(value)
        self.operands = []

    def _saving(self) -> AbstractContextManager[object]:
        """Record what autograd saves for backward in a block."""
        if not self.gradients:
            return nullcontext()

        def kept(tensor: torch.Tensor) -> torch.Tensor:
            self.saved[tensor.untyped_storage().data_ptr()] = tensor
            return tensor

        return saved_tensors_hooks(kept, lambda tensor: tensor)


def is_mistaken(value: ScopeValue, scope: Scope) -> bool:
    """Return whether AOTAutograd (torch 2.13) reconstructs a result from the wrong memory.

    The faults are those of these scripts in docs/findings:

    - shared_inputs.py: several inputs share memory, and the result is a view of it
    - returned_input.py: the same beside an input that has a storage offset
    - chunked_input.py: with dynamic sizes, the gaps of an input are lost
    - detached_view.py: a view of a computed value is returned, and also detached
    """
    inputs = [v.tensor for v in scope.values if v.name.startswith("a")]
    place, own = value.tensor.untyped_storage().data_ptr(), layout(value.tensor)
    if place in scope.shared:
        return all(layout(t) != own for t in inputs)
    its = [t for t in inputs if t.untyped_storage().data_ptr() == place]
    tied = any(v.tensor.requires_grad and share_memory(v, value) for v in scope.values)
    if tied and not value.tensor.requires_grad and not fills_memory(value.tensor):
        return not its
    if scope.stretched is not None and not all(t.is_contiguous() for t in its):
        return True
    return bool(scope.shared) and any(t.storage_offset() for t in its)


def fills_memory(tensor: torch.Tensor) -> bool:
    """Return whether the elements fill the memory of the tensor in row-major order."""
    return tensor.is_contiguous() and tensor.nbytes == tensor.untyped_storage().nbytes()


def layout(tensor: torch.Tensor) -> tuple[object, ...]:
    """Return the positions of the elements; equal for two tensors with the same elements."""
    return tensor.data_ptr(), tensor.shape, tensor.stride()


def share_memory(a: ScopeValue, b: ScopeValue) -> bool:
    """Return whether two values share memory, so that a write to one may change the other."""
    first, second = a.tensor.untyped_storage(), b.tensor.untyped_storage()
    return first.data_ptr() == second.data_ptr() and first.nbytes() > 0
