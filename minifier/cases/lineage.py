"""How tensors are related: which are views of which, and which only share memory.

A compiler treats two inputs that share memory by what autograd knows about them: the base of a
view, the mode in which the view was created, whether a tensor is a leaf, and whether two tensors
share a version counter. A lineage stores all of this as data, so that copies and repro scripts can
restore it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

import torch

Change = Callable[[torch.Tensor], torch.Tensor]
"""Returns new contents for a piece of memory, given as a flat tensor of one dtype."""

NO_GRAD, INFERENCE = "NO_GRAD_MODE", "INFERENCE_MODE"
"""Modes in which autograd does not track the views that are created."""


class Relation(StrEnum):
    """How a tensor is created, and its relation to the tensor that it is created from."""

    MEMORY = "memory"
    """With its own memory."""
    VIEW = "view"
    """As a view of another tensor."""
    DETACHED = "detached"
    """In another tensor's memory, with a shared version counter, as `detach` returns it."""
    STORAGE = "storage"
    """In another tensor's memory, unknown to autograd, as `.data` returns it."""


class SharedDtypes(TypeError):
    """Memory that tensors of several dtypes share cannot change its dtype."""


@dataclass(frozen=True)
class Member:
    """A tensor: its layout, its origin, and its autograd state."""

    how: Relation
    of: int
    """The place of the tensor that it is created from; -1 if it has its own memory."""
    dtype: torch.dtype
    size: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    device: str
    lazy: tuple[str, ...] = ()
    """Lazy functions on the memory: conj, _neg_view."""
    requires_grad: bool = False
    leaf: bool = True
    parameter: bool = False
    inference: bool = False
    creation: str = "DEFAULT"
    """The mode in which a view was created, by torch's name for it."""

    @property
    def fills(self) -> bool:
        """Whether it starts at the beginning of its memory and has no gaps."""
        meta = torch.empty_strided(self.size, self.stride, device="meta")
        return self.offset == 0 and meta.is_contiguous()

    @property
    def end(self) -> int:
        """The index after its last element."""
        if 0 in self.size:
            return self.offset
        steps = zip(self.size, self.stride, strict=True)
        return self.offset + sum((n - 1) * s for n, s in steps) + 1

    def expression(self, name: str, source: torch.dtype, numel: int) -> str:
        """Return an expression that creates it from `name`, whose memory has `numel` elements."""
        layout = f".as_strided({self.size}, {self.stride}, {self.offset})"
        if self.how is Relation.STORAGE:
            device = "" if self.device == "cpu" else f", device={self.device!r}"
            place = f"{name}.untyped_storage(), {self.offset}, {self.size}, {self.stride}"
            text = f"torch.empty(0, dtype={self.dtype}{device}).set_({place})"
        elif source == self.dtype:
            text = f"{name}{layout}"
        elif source.is_complex and not self.dtype.is_complex:
            text = f"torch.view_as_real({name}.as_strided(({numel},), (1,), 0)){layout}"
        elif self.dtype.is_complex and not source.is_complex:
            text = f"torch.view_as_complex({name}.as_strided(({numel // 2}, 2), (2, 1), 0)){layout}"
        else:
            whole = numel - numel % max(1, self.dtype.itemsize // source.itemsize)
            text = f"{name}.as_strided(({whole},), (1,), 0).view({self.dtype}){layout}"
        for function in self.lazy:
            text = f"torch.{function}({text})"
        apart = self.how is Relation.DETACHED or (self.how is Relation.STORAGE and self.lazy)
        return f"{text}.detach()" if apart else text


@dataclass(frozen=True)
class Lineage:
    """Tensors in an order in which they can be created, and the place of each value among them."""

    members: tuple[Member, ...]
    memories: tuple[torch.Tensor | None, ...]
    """For members with their own memory: that memory, flat, in their dtype, not copied."""
    places: tuple[int | None, ...]
    """The place of each value; None for a value that is not a plain tensor."""

    def root(self, place: int) -> int:
        """Return the place of the tensor that owns the memory of another."""
        while (of := self.members[place].of) >= 0:
            place = of
        return place

    def family(self, place: int) -> list[int]:
        """Return the places of all tensors that share one memory, in order."""
        root = self.root(place)
        return [k for k in range(len(self.members)) if self.root(k) == root]

    @property
    def related(self) -> set[int]:
        """The places of tensors that share their memory."""
        roots = [self.root(k) for k in range(len(self.members))]
        given = [roots[k] for k in self.places if k is not None]
        return {k for k, r in enumerate(roots) if roots.count(r) > 1 or given.count(r) > 1}

    def text(self) -> list[str]:
        """Describe each value except for its contents. Equal lineages have equal texts."""
        lines = [f"{m.how} {m.of} {m.lazy} {_autograd(m)}" for m in self.members]
        for place in sorted(self.related):
            m = self.members[place]
            lines[place] += f" {m.dtype} {m.size} {m.stride} {m.offset}"
        return [*lines, str(self.places)]

    def numel(self, place: int) -> int:
        """Return how many elements of the tensor's dtype fit its memory."""
        memory = self.memories[self.root(place)]
        assert memory is not None
        return memory.untyped_storage().nbytes() // self.members[place].dtype.itemsize

    def clones(self, place: int) -> bool:
        """Return whether a tensor was computed and a clone of a leaf can replace it."""
        member = self.members[place]
        if member.leaf or member.how is not Relation.MEMORY or member.offset:
            return False
        meta = torch.empty_strided(member.size, member.stride, device="meta", dtype=member.dtype)
        whole = place not in self.related or member.end == self.numel(place)
        return whole and meta.clone().stride() == member.stride

    def build(self, change: Change | None = None) -> list[torch.Tensor]:
        """Create new tensors with this lineage, in order. `change` is applied to each memory."""
        made: list[torch.Tensor] = []
        for place, member in enumerate(self.members):
            with creation_mode(member):
                made.append(self._made(place, member, made, change))
        return made

    def _made(
        self, place: int, member: Member, made: Sequence[torch.Tensor], change: Change | None
    ) -> torch.Tensor:
        if member.how is Relation.MEMORY:
            value = _create_owner(self._memory(place, change), member)
            return value.clone() if self.clones(place) else value
        of = made[member.of]
        if change is not None:
            member = replace(member, dtype=self._changed_dtype(place, change))
        numel = of.untyped_storage().nbytes() // of.dtype.itemsize
        # a repro script holds this same text, so both create the same tensors
        text = member.expression("of", of.dtype, numel)
        taken: torch.Tensor = eval(text, {"torch": torch, "of": of})
        if member.how is Relation.VIEW:
            mark_creation(taken, member)
        if member.requires_grad and not taken.requires_grad:
            taken.requires_grad_()
        return _as_parameter(taken, member)

    def _memory(self, place: int, change: Change | None) -> torch.Tensor:
        memory = self.memories[place]
        assert memory is not None
        if change is not None:
            return change(memory)
        raw = torch.empty(0, dtype=torch.uint8, device=memory.device)
        copy = raw.set_(memory.untyped_storage()).clone()
        whole = torch.empty(0, dtype=memory.dtype, device=memory.device)
        return whole.set_(copy.untyped_storage())

    def _changed_dtype(self, place: int, change: Change) -> torch.dtype:
        """Return the dtype of a tensor after its memory has changed."""
        memory = self.memories[self.root(place)]
        assert memory is not None
        before, own = memory.dtype, self.members[place].dtype
        after = change(memory[:0]).dtype
        if own != before and after != before:
            raise SharedDtypes(f"{own} and {before} share memory that would become {after}")
        return after if own == before else own


def _autograd(member: Member) -> str:
    flags = (member.requires_grad, member.leaf, member.parameter, member.inference)
    return f"{flags} {member.creation}"


def is_plain(value: object) -> bool:
    """Return whether a value is a tensor that its memory and layout describe completely."""
    if not isinstance(value, torch.Tensor) or type(value) not in (torch.Tensor, torch.nn.Parameter):
        return False
    if value.layout != torch.strided or value.is_quantized:
        return False
    try:
        _place(value)
    except RuntimeError:  # wrappers such as those of vmap and functionalize have no memory
        return False
    return True


def lineage(values: Sequence[Any]) -> Lineage:
    """Return the lineage of values. It includes view bases that are not among them."""
    found = _LineageBuilder()
    places = tuple(found.add(v) if is_plain(v) else None for v in values)
    return Lineage(tuple(found.members), tuple(found.memories), places)


class _LineageBuilder:
    """A lineage under construction."""

    def __init__(self) -> None:
        self.members: list[Member] = []
        self.memories: list[torch.Tensor | None] = []
        self._tensors: list[torch.Tensor] = []
        self._places: dict[int, int] = {}
        self._owners: dict[int, int] = {}

    def add(self, value: torch.Tensor) -> int:
        """Return the place of a tensor. A tensor that is new is added."""
        if id(value) not in self._places:
            how, of = self._origin(value)
            memory = _flat(value) if how is Relation.MEMORY else None
            member = _member(value, how, of, self._tensors[of] if of >= 0 else None)
            self._places[id(value)] = len(self.members)
            if how is Relation.MEMORY:
                self._owners.setdefault(_place(value), len(self.members))
            self.members.append(member)
            self.memories.append(memory)
            self._tensors.append(value)
        return self._places[id(value)]

    def _origin(self, value: torch.Tensor) -> tuple[Relation, int]:
        base = value._base if value._is_view() else None
        if base is not None and is_plain(base) and _place(base) == _place(value):
            return Relation.VIEW, self.add(base)
        owner = self._owners.get(_place(value), -1) if _place(value) else -1
        if owner < 0:
            return Relation.MEMORY, -1
        together = _share_version_counter(self._tensors[owner], value)
        return Relation.DETACHED if together else Relation.STORAGE, owner


def _place(value: torch.Tensor) -> int:
    return value.untyped_storage().data_ptr()


def _flat(value: torch.Tensor) -> torch.Tensor:
    with torch.inference_mode(value.is_inference()):
        return torch.empty(0, dtype=value.dtype, device=value.device).set_(value.untyped_storage())


def _member(value: torch.Tensor, how: Relation, of: int, base: torch.Tensor | None) -> Member:
    viewed = base is not None and how is Relation.VIEW and base.is_conj()
    conj = value.is_conj() != viewed
    lazy = ("conj",) * conj + ("_neg_view",) * value.is_neg()
    creation = "DEFAULT"
    if how is Relation.VIEW:
        creation = torch._C._autograd._get_creation_meta(value).name
    return Member(
        how, of, value.dtype, tuple(value.shape), tuple(value.stride()),
        int(value.storage_offset()), str(value.device), lazy, value.requires_grad, value.is_leaf,
        isinstance(value, torch.nn.Parameter), value.is_inference(), creation,
    )  # fmt: skip


def _share_version_counter(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Return whether two tensors share a version counter. Both counters keep their values."""
    if one.is_inference() or other.is_inference() or one._version != other._version:
        return False
    before = one._version
    torch.autograd.graph.increment_version(one)
    together = other._version != before
    torch._C._autograd._unsafe_set_version_counter((one,), (before,))
    return together


def _create_owner(memory: torch.Tensor, member: Member) -> torch.Tensor:
    """Create a tensor that owns `memory`."""
    value = torch.empty(0, dtype=memory.dtype, device=memory.device)
    value.set_(memory.untyped_storage(), member.offset, member.size, member.stride)
    for function in member.lazy:
        value = getattr(torch, function)(value)
    value = _as_parameter(value.detach(), member)
    if member.requires_grad:
        value.requires_grad_()
    return value


def _as_parameter(value: torch.Tensor, member: Member) -> torch.Tensor:
    if not member.parameter or isinstance(value, torch.nn.Parameter):
        return value
    return torch.nn.Parameter(value, requires_grad=member.requires_grad)


def mark_creation(value: torch.Tensor, member: Member) -> None:
    """Tell autograd how a view was created, unless a grad mode implies it."""
    if member.creation not in ("DEFAULT", NO_GRAD, INFERENCE):
        kind = getattr(torch._C._autograd.CreationMeta, member.creation)
        torch._C._autograd._set_creation_meta(value, kind)


@contextlib.contextmanager
def creation_mode(member: Member) -> Iterator[None]:
    """Enter the mode in which a tensor was created."""
    inference = member.inference or member.creation == INFERENCE
    with (
        torch.inference_mode(inference),
        torch.set_grad_enabled(member.creation != NO_GRAD and not inference),
    ):
        yield


def leaves(values: Sequence[Any]) -> list[torch.Tensor]:
    """Return the autograd leaves behind values, without duplicates: the targets of gradients."""
    found: dict[int, torch.Tensor] = {}
    for value in values:
        if isinstance(value, torch.Tensor) and value.requires_grad:
            leaf = _leaf(value)
            found.setdefault(id(leaf), leaf)
    return list(found.values())


def _leaf(value: torch.Tensor) -> torch.Tensor:
    node: Any = value.grad_fn
    while node is not None and not hasattr(node, "variable"):
        node = next((n for n, _ in node.next_functions if n is not None), None)
    return value if node is None else node.variable
