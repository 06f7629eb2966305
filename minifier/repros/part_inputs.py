"""The inputs of a case, with the parts of a tensor subclass in its place."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from tcdebug.minifier.cases.case import Case, CaseInput
from tcdebug.minifier.cases.subclasses import text
from tcdebug.minifier.cases.subclasses.apart import SubclassTensor, taken_apart


@dataclass(frozen=True)
class PartInputs:
    """Plain inputs, and the lines that create tensor subclasses from them.

    A part is named after the first tensor that has it.
    """

    inputs: tuple[CaseInput, ...]
    lines: tuple[str, ...]
    imports: tuple[str, ...] = ()
    """Lines that import what the others need."""

    @classmethod
    def of(cls, case: Case) -> PartInputs:
        """Take the inputs of a case apart. Raises NoText."""
        apart = taken_apart(case.values())
        imports = text.imports(apart.values)
        if any(map(text.is_mesh, case.values())):
            imports.append(f"import {text.PLACED}")
        if not apart.wrappers():
            return cls(case.inputs, (), tuple(imports))
        names: dict[int, str] = {}
        inputs: dict[int, CaseInput] = {}
        taken = {spec.name for spec in case.inputs}
        whole: dict[int, str] = {}
        lines: list[str] = []

        def name_parts(value: SubclassTensor, prefix: str) -> None:
            for name, part in zip(value.names, value.parts, strict=True):
                own = f"{prefix}_{name.strip('_')}"
                if isinstance(part, SubclassTensor):
                    name_parts(part, own)
                elif part not in names and name not in text.LENGTHS:
                    names[part] = _free(own, taken)
                    if isinstance(apart.parts[part], torch.Tensor):
                        inputs[part] = CaseInput(names[part], apart.parts[part])

        again: list[CaseInput] = []
        for spec, value in zip(case.inputs, apart.values, strict=True):
            if not isinstance(value, SubclassTensor):
                names.setdefault(value, spec.name)
                again.append(spec)
                continue
            name_parts(value, spec.name)
            made = whole.get(id(value))
            lines.append(f"{spec.name} = {made or text.rebuilt(value, names, apart.parts)}")
            whole.setdefault(id(value), spec.name)
        plain = [inputs[k] for k in sorted(inputs)]
        return cls((*again, *plain), tuple(lines), tuple(dict.fromkeys(imports)))


def _free(name: str, taken: set[str]) -> str:
    found, count = name, 0
    while found in taken:
        count += 1
        found = f"{name}_{count}"
    taken.add(found)
    return found
