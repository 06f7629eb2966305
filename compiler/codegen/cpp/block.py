"""Blocks of C++ under construction."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Block:
    """Lines between braces. `opening` is the text before the brace; if empty, there is no brace."""

    opening: str = ""
    items: list[str | Block] = field(default_factory=list)
    names: dict[str, str] = field(default_factory=dict)

    def add(self, line: str) -> None:
        """Append a line."""
        self.items.append(line)

    def open(self, opening: str) -> Block:
        """Append a block and return it."""
        block = Block(opening)
        self.items.append(block)
        return block

    def text(self, indent: int = 0) -> str:
        """Return the block as C++."""
        space = "  " * indent
        lines: list[str] = []
        if self.opening:
            lines.append(f"{space}{self.opening} {{")
        inside = indent + bool(self.opening)
        for item in self.items:
            if isinstance(item, Block):
                lines.append(item.text(inside))
            else:
                lines.append("  " * inside + item if not item.startswith("#") else item)
        if self.opening:
            lines.append(f"{space}}}")
        return "\n".join(lines)
