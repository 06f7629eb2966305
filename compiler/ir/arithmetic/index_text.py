"""Writes indices as text, in Python or in another language."""

from __future__ import annotations

from tcdebug.compiler.ir.arithmetic.index import Atom, Index
from tcdebug.compiler.ir.arithmetic.polynomial import sum_text


class IndexText:
    """Writes an index as Python. Subclasses in `codegen` write other languages."""

    def atom(self, atom: Atom) -> str:
        """Return an atom as an operand that needs no parentheses."""
        return atom.text(lambda index: render(index, self))

    def literal(self, value: int) -> str:
        """Return an integer constant."""
        return str(value)


PYTHON = IndexText()


def render(value: Index, text: IndexText = PYTHON) -> str:
    """Return the index as an expression in the language of `text`."""
    return sum_text(value.ordered, text.atom, text.literal)
