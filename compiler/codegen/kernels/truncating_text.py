"""Writes indices in languages whose integer division rounds toward zero."""

from __future__ import annotations

from collections.abc import Mapping

from tcdebug.compiler.ir.arithmetic.index import Quotient, Remainder, is_nonnegative
from tcdebug.compiler.ir.arithmetic.index_text import IndexText, render


class TruncatingText(IndexText):
    """Writes indices. `places` maps the key of an indirect index to its variable.

    Uses the division of the language if the numerator cannot be negative, otherwise `functions`,
    which round down.
    """

    division = "/"
    functions = ("index_div", "index_mod")

    def __init__(self, places: Mapping[str, str] | None = None) -> None:
        self.places = places or {}

    def divided(self, atom: Quotient | Remainder) -> str:
        """Return a quotient or a remainder."""
        whole = isinstance(atom, Quotient)
        top, bottom = render(atom.numerator, self), render(atom.denominator, self)
        low = atom.numerator.bounds[0]
        if low is not None and is_nonnegative(low):
            return f"(({top}) {self.division if whole else '%'} ({bottom}))"
        return f"{self.functions[0 if whole else 1]}({top}, {bottom})"
