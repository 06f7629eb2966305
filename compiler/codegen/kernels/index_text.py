"""Indices as text of a language that rounds integer division toward zero."""

from __future__ import annotations

from collections.abc import Mapping

from tcdebug.compiler.ir.index import (
    IndexText,
    Quotient,
    Remainder,
    is_nonnegative,
    render,
)


class TruncatingText(IndexText):
    """`places` gives the variables of indices read from memory.

    Division is the language's own where it rounds down as well, else one of two functions.
    """

    division = "/"
    functions = ("index_div", "index_mod")

    def __init__(self, places: Mapping[str, str] | None = None) -> None:
        self.places = places or {}

    def divided(self, atom: Quotient | Remainder) -> str:
        """A quotient or a remainder."""
        whole = isinstance(atom, Quotient)
        top, bottom = render(atom.numerator, self), render(atom.denominator, self)
        low = atom.numerator.bounds[0]
        if low is not None and is_nonnegative(low):
            return f"(({top}) {self.division if whole else '%'} ({bottom}))"
        return f"{self.functions[0 if whole else 1]}({top}, {bottom})"
