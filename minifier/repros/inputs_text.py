"""Writes the inputs of a case as Python: seeded, inlined, or read from a file by the script."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from tcdebug.compiler.effects import overlaps
from tcdebug.minifier.cases.case import Case, CaseInput
from tcdebug.minifier.cases.lineage import (
    INFERENCE,
    NO_GRAD,
    Lineage,
    Member,
    Relation,
    lineage,
)
from tcdebug.minifier.cases.subclasses.text import is_mesh, mesh_text
from tcdebug.minifier.repros.part_inputs import PartInputs

INLINE = 64
"""Tensors that must be kept are written into the script up to this many elements."""
NO_LITERAL = re.compile(r"-?\binf\b|\bnan\b")


@dataclass(frozen=True)
class InputsText:
    """The text of the inputs in a repro script."""

    inputs: tuple[CaseInput, ...]
    """The inputs, with the parts of a tensor subclass in its place."""
    how: Mapping[str, str]
    """The origin of each input in the script: literal, seeded, inlined, stored or derived."""
    stored: Mapping[str, torch.Tensor]
    """The tensors that are stored in the file beside the script."""
    family: Lineage
    names: tuple[str, ...]
    """The names of the tensors of the family."""
    inference: bool
    """Whether the script calls its graph in inference mode."""
    arguments: tuple[str, ...]
    """The names of the arguments of the graph."""
    rebuilt: PartInputs
    """How tensor subclasses are created from their parts."""

    @classmethod
    def of(cls, case: Case, *, store: bool, inference: bool) -> InputsText:
        """Prepare the text for a case. With `store`, all tensors are stored.

        Raises NoText.
        """
        given = PartInputs.of(case)
        inputs = given.inputs
        family = lineage([i.value for i in inputs])
        names = _names(inputs, family)
        specs = {k: i for i, k in zip(inputs, family.places, strict=True) if k is not None}
        how: dict[str, str] = {}
        stored: dict[str, torch.Tensor] = {}
        for place, member in enumerate(family.members):
            if member.how is not Relation.MEMORY:
                how[names[place]] = "derived"
                continue
            relatives = [specs[k] for k in family.family(place) if k in specs]
            spec, value = relatives[0], _content(family, place, specs)
            how[names[place]] = _kind(value, spec, store=store)
            if how[names[place]] == "stored":
                stored[names[place]] = value
        for spec in inputs:
            if isinstance(spec.value, torch.Tensor) and spec.name not in how:
                how[spec.name] = _kind(spec.value, spec, store=store)
                if how[spec.name] == "stored":
                    stored[spec.name] = spec.value
            how.setdefault(spec.name, "literal")
        arguments = tuple(i.name for i in case.inputs)
        return cls(inputs, how, stored, family, names, inference, arguments, given)

    @property
    def kind(self) -> str:
        """The origin of the inputs as a whole: stored if any is, else inlined, else seeded."""
        kinds = set(self.how.values())
        return next((k for k in ("stored", "inlined") if k in kinds), "seeded")

    @property
    def widens(self) -> bool:
        """Whether `inputs` takes a function that widens memory, because tensors share memory."""
        return bool(self.family.related)

    @property
    def can_be_widened(self) -> bool:
        """Whether there are inputs in float64, with which the script makes an exact run.

        Memory that tensors of several dtypes share cannot be widened.
        """
        members = self.family.members
        dtypes = {m.dtype for k, m in enumerate(members) if k in self.family.related}
        mixed = any(
            len({members[k].dtype for k in self.family.family(place)}) > 1
            for place in self.family.related
        )
        return not (mixed and dtypes & {torch.float32, torch.float16, torch.bfloat16})

    def text(self, *, has_data: bool) -> str:
        """Return the function `inputs`, and with `has_data` the function that reads the file."""
        lines = [self._head()]
        if self.stored:
            lines.append("    data = stored()")
        places = {k: i for i, k in zip(self.inputs, self.family.places, strict=True)}
        for place, member in enumerate(self.family.members):
            lines += self._member(place, member, places.get(place))
        for spec, own in zip(self.inputs, self.family.places, strict=True):
            if own is None:
                text = input_text(spec, self.how[spec.name])
                lines.append(f"    {spec.name} = {text}")
            elif self.names[own] != spec.name:
                lines.append(f"    {spec.name} = {self.names[own]}")
        lines += [f"    {line}" for line in self.rebuilt.lines]
        lines.append(f"    return [{', '.join(self.arguments)}]\n")
        return "\n".join(lines) + _STORED * has_data

    def _head(self) -> str:
        head = f"def inputs({'wide=lambda memory: memory' * self.widens}):"
        members = self.family.members
        if any(m.requires_grad and not m.leaf for m in members):
            head = f"@torch.enable_grad()\n{head}"
        if self.inference and not all(m.inference for m in members):
            head = f"@torch.inference_mode(False)\n{head}"
        return head

    def _member(self, place: int, member: Member, spec: CaseInput | None) -> list[str]:
        """Return the lines that create one tensor."""
        name, how = self.names[place], self.how[self.names[place]]
        if member.how is Relation.MEMORY:
            if place in self.family.related:
                text = self._root_text(place, member, how)
            else:
                assert spec is not None
                text = input_text(spec, how)
                text += ".clone()" * (member.inference and how == "stored")
            text += ".clone()" * self.family.clones(place)
        else:
            source = self.family.members[member.of].dtype
            numel = self.family.numel(member.of)
            text = member.expression(self.names[member.of], source, numel)
            requires = self.family.members[member.of].requires_grad
            inherits = member.how is Relation.VIEW and requires
            parameter = member.parameter and not (inherits or member.inference)
            text = _with_gradient(text, parameter, member.requires_grad and not inherits)
        lines = [f"{name} = {text}"]
        if member.creation not in ("DEFAULT", NO_GRAD, INFERENCE):
            kind = f"torch._C._autograd.CreationMeta.{member.creation}"
            lines.append(f"torch._C._autograd._set_creation_meta({name}, {kind})")
        if mode := self._mode(member):
            lines = [f"with {mode}:", *(f"    {line}" for line in lines)]
        return [f"    {line}" for line in lines]

    def _mode(self, member: Member) -> str:
        """Return the mode in which the lines of a tensor must run; empty if any mode works."""
        if member.creation == NO_GRAD:
            return "torch.no_grad()"
        all_inference = self.inference and all(m.inference for m in self.family.members)
        if (member.inference or member.creation == INFERENCE) and not all_inference:
            return "torch.inference_mode()"
        return ""

    def _root_text(self, place: int, member: Member, how: str) -> str:
        """Return an expression for a tensor whose memory others share, from the whole memory."""
        name = self.names[place]
        specs = {i.name: i for i in self.inputs}
        recipe = next((specs[n].recipe for n in self._relatives(place) if n in specs), None)
        content = _content(self.family, place, {})
        text = input_text(CaseInput(name, content, recipe=recipe), how)
        text = f"wide({text}{'.clone()' * (member.inference and how == 'stored')})"
        if not _whole(self.family, place):
            text += f".as_strided({member.size}, {member.stride}, {member.offset})"
            for function in member.lazy:
                text = f"torch.{function}({text})"
            text += ".detach()"
        parameter = member.parameter and not member.inference
        return _with_gradient(text, parameter, member.requires_grad)

    def _relatives(self, place: int) -> list[str]:
        return [self.names[k] for k in self.family.family(place)]


def _names(inputs: Sequence[CaseInput], family: Lineage) -> tuple[str, ...]:
    """Return the names of the tensors of a family: those of the inputs, and new ones for bases."""
    given: dict[int, str] = {}
    for spec, place in zip(inputs, family.places, strict=True):
        if place is not None:
            given.setdefault(place, spec.name)
    taken = {i.name for i in inputs}
    for place in range(len(family.members)):
        count = 0
        while place not in given:
            name = f"base_{count}" if count else "base"
            if name not in taken:
                given[place] = name
                taken.add(name)
            count += 1
    return tuple(given[k] for k in range(len(family.members)))


def _content(family: Lineage, place: int, specs: Mapping[int, CaseInput]) -> torch.Tensor:
    """Return the data to keep for a tensor: itself if it shares nothing, or else its memory."""
    if place in specs and place not in family.related:
        value = specs[place].value
        assert isinstance(value, torch.Tensor)
        return value
    memory, member = family.memories[place], family.members[place]
    assert memory is not None
    content = memory.detach()
    return content.as_strided(member.size, member.stride) if _whole(family, place) else content


def _whole(family: Lineage, place: int) -> bool:
    """Return whether a tensor covers its whole memory, in order."""
    member = family.members[place]
    return member.fills and not member.lazy and member.end == family.numel(place)


def _kind(value: torch.Tensor, spec: CaseInput, *, store: bool) -> str:
    if store:
        return "stored"
    if spec.recipe is not None:
        return "seeded"
    return "inlined" if _is_plain(value) else "stored"


def _is_plain(value: torch.Tensor) -> bool:
    """Return whether a list of numbers and the strides describe a tensor completely."""
    if value.layout != torch.strided or value.is_quantized or value.dtype.is_complex:
        return False
    one_byte_float = value.is_floating_point() and value.element_size() == 1
    lazy = value.is_neg() or value.storage_offset() != 0 or overlaps(value)
    return value.numel() <= INLINE and not one_byte_float and not lazy


_STORED = '''

def stored():
    """Return the tensors of the safetensors file beside this script."""
    import json
    with open(os.path.splitext(os.path.abspath(__file__))[0] + ".safetensors", "rb") as file:
        raw = file.read()
    start = 8 + int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8:start])
    layouts = json.loads(header.pop("__metadata__")["layouts"])
    found, storages = {}, {}
    for name, (storage, dtype, size, stride, offset, lazy) in layouts.items():
        if storage not in storages:
            low, high = header[storage]["data_offsets"]
            storages[storage] = bytearray(raw[start + low:start + high] or b"\\0" * 16)
        flat = torch.frombuffer(storages[storage], dtype=torch.uint8).untyped_storage()
        found[name] = torch.empty(0, dtype=getattr(torch, dtype)).set_(flat, offset, size, stride)
        for function in lazy:
            found[name] = getattr(torch, function)(found[name]).detach()
    return found
'''


def input_text(spec: CaseInput, how: str = "") -> str:
    """Return an expression that creates one input; seeded or inlined if `how` is empty."""
    value = spec.value
    if is_mesh(value):
        return mesh_text(value)
    if not isinstance(value, torch.Tensor):
        return _literal(value)
    match how or ("seeded" if spec.recipe is not None else "inlined"):
        case "stored":
            text = f"data[{spec.name!r}]"
            if value.device.type != "cpu":
                text = _laid_out(f"{text}.to({str(value.device)!r})", value)
        case "inlined":
            made = f"tensor({_literal(value.tolist())}"
            made = made if value.numel() else f"empty({tuple(value.shape)}"
            text = f"torch.{made}, dtype={value.dtype}{_device_text(value)})"
            text = _laid_out(text, value)
        case _:
            text = _laid_out(_recipe_text(spec), value)
    parameter = isinstance(value, torch.nn.Parameter) and not value.is_inference()
    return _with_gradient(text, parameter, value.requires_grad)


def _with_gradient(text: str, parameter: bool, requires_grad: bool) -> str:
    """Return an expression for a tensor that is a parameter, or has a gradient, or neither.

    torch compiles parameters otherwise than inputs: sizes are static, and freezing folds them.
    """
    if parameter:
        return f"torch.nn.Parameter({text}{'' if requires_grad else ', False'})"
    return text + ".requires_grad_()" if requires_grad else text


def _recipe_text(spec: CaseInput) -> str:
    recipe, value = spec.recipe, spec.value
    assert recipe is not None
    size = tuple(value.shape)
    generator = f"generator=torch.Generator().manual_seed({recipe.seed})"
    plain = torch.float32
    match recipe.kind:
        case "randn" if value.dtype.is_complex:
            plain = torch.complex64
            text = f"torch.randn({size}, {generator}, dtype={plain})"
        case "randn":
            text = f"torch.randn({size}, {generator})"
        case "randint":
            plain = torch.int64
            text = f"torch.randint({recipe.low}, {recipe.high}, {size}, {generator})"
        case "arange":
            plain = torch.int64
            numbers = f"torch.arange({value.numel()})"
            if recipe.low != 0 or recipe.high < value.numel():
                numbers = f"({numbers} % {recipe.high - recipe.low} + {recipe.low})"
            text = numbers if value.dim() == 1 else f"{numbers}.view({size})"
            apart = value.dtype != plain or value.dim() == 1 or value.device.type != "cpu"
            text += "" if apart else ".clone()"  # otherwise it would be a view of the range
        case _:
            plain = value.dtype
            dtype = "" if plain == torch.float32 else f", dtype={plain}"
            text = f"torch.{recipe.kind}({size}{dtype})"
    text = text if value.device.type == "cpu" else f"{text}.to({str(value.device)!r})"
    return text if value.dtype == plain else f"{text}.to({value.dtype})"


def _laid_out(text: str, value: torch.Tensor) -> str:
    """Give the expression the strides of the value if those are unusual."""
    if value.is_contiguous():
        return text
    if overlaps(value):
        return text  # the recorded values of an expanded tensor were materialised
    size, stride = tuple(value.shape), tuple(value.stride())
    made = f"torch.empty_strided({size}, {stride}, dtype={value.dtype}{_device_text(value)})"
    return f"{made}.copy_({text})"


def _device_text(value: torch.Tensor) -> str:
    return "" if value.device.type == "cpu" else f", device={str(value.device)!r}"


def _literal(value: Any) -> str:
    """Return the repr of a value, with float('inf') and float('nan'), which have no literals."""
    return NO_LITERAL.sub(lambda found: f"float({found.group()!r})", repr(value))
