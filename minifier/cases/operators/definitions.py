"""The beginning of a graph's text, which defines what the graph calls."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from tcdebug.minifier.cases.operators.triton_launches import DESCRIPTOR, KernelLaunch


@dataclass
class Definitions:
    """The texts that define what the classes of a graph call: Triton kernels, calls of NumPy."""

    imports: set[str] = field(default_factory=set)
    definitions: dict[str, str] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """The definitions, each before those that use it; empty if there are none."""
        return "".join(f"{text.rstrip()}\n\n" for text in self.definitions.values())

    def define(self, name: str, value: str) -> str:
        """Give a value a name, which changes if it has another value already; return the name."""
        text = f"{name} = {value}"
        while self.definitions.get(name, text) != text:
            name = _next_name(name)
            text = f"{name} = {value}"
        self.definitions[name] = text
        return name

    def add(self, launch: KernelLaunch, taken: Collection[str]) -> str:
        """Add the kernel of a launch; return its name. Local variables have the names in `taken`.

        If another kernel needs another definition of a name, the later one gets a new name.
        """
        self.imports.update(launch.kernel.imports)
        if launch.blocks:
            self.imports.add(DESCRIPTOR)
        changed: dict[str, str] = {}
        for name, original in launch.kernel.definitions:
            text = _renamed(original, changed)
            known = name
            while self.definitions.get(known, text) != text or known in taken:
                known = _next_name(known)
                text = _renamed(original, {**changed, name: known})
            if known != name:
                changed[name] = known
            self.definitions[known] = text
        return changed.get(launch.kernel.name, launch.kernel.name)


def _next_name(name: str) -> str:
    stem, _, number = name.rpartition("_")
    return f"{stem}_{int(number) + 1}" if stem and number.isdigit() else f"{name}_1"


def _renamed(text: str, names: Mapping[str, str]) -> str:
    for name, other in names.items():
        text = re.sub(rf"\b{name}\b", other, text)
    return text
