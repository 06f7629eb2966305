"""Converts torch's symbolic sizes, which are sympy expressions, to `Index`. Adds no guards."""

from __future__ import annotations

from collections.abc import Sequence

import sympy  # type: ignore[import-untyped] # it ships no types
import torch
from torch.utils._sympy import functions as torch_functions

from tcdebug.compiler.ir.arithmetic.index import Index, Symbol, product, to_index
from tcdebug.compiler.ir.arithmetic.order import extremum


class Unrepresentable(Exception):
    """A size cannot be written as a polynomial with quotients, remainders and extrema."""


QUOTIENTS = tuple(
    getattr(torch_functions, name)
    for name in ("FloorDiv", "CleanDiv")
    if hasattr(torch_functions, name)
)
REMAINDERS = tuple(
    getattr(torch_functions, name)
    for name in ("Mod", "PythonMod")
    if hasattr(torch_functions, name)
)
MAXIMA = (sympy.Max, *(f for f in [getattr(torch_functions, "Max", None)] if f))
MINIMA = (sympy.Min, *(f for f in [getattr(torch_functions, "Min", None)] if f))


class Sizes:
    """Converts the sizes of one compile. Symbols keep torch's names and proven lower bounds."""

    def __init__(self) -> None:
        self._symbols: dict[sympy.Symbol, Symbol] = {}
        self._converted: dict[sympy.Expr, Index] = {}

    def index(self, size: int | torch.SymInt) -> Index:
        """Convert a size. Raises Unrepresentable."""
        if not isinstance(size, torch.SymInt):
            return to_index(int(size))
        node = size.node
        return self.from_sympy(node.expr, node.shape_env)

    def indices(self, sizes: Sequence[int | torch.SymInt]) -> tuple[Index, ...]:
        """Convert several sizes. Raises Unrepresentable."""
        return tuple(self.index(s) for s in sizes)

    def symbol(self, size: torch.SymInt) -> Symbol | None:
        """Return the symbol of a size that is a single symbol, else None."""
        expr = size.node.expr
        if isinstance(expr, sympy.Symbol):
            return self._symbol(expr, size.node.shape_env)
        return None

    def named(self, symbol: sympy.Symbol, shape_env: object) -> Symbol:
        """Return the symbol of a sympy symbol."""
        return self._symbol(symbol, shape_env)

    def _symbol(self, symbol: sympy.Symbol, shape_env: object) -> Symbol:
        if symbol not in self._symbols:
            bounds = shape_env.bound_sympy(symbol)  # type: ignore[attr-defined] # ShapeEnv is untyped here
            # the size of a ragged dimension has no bounds
            least = None if bounds is None else bounds.lower
            lower = int(least) if isinstance(least, sympy.Integer) else None
            self._symbols[symbol] = Symbol(str(symbol), lower)
        return self._symbols[symbol]

    def from_sympy(self, expr: sympy.Expr, shape_env: object) -> Index:
        """Convert a sympy expression over torch's symbols. Raises Unrepresentable."""
        if expr not in self._converted:
            self._converted[expr] = self._convert(expr, shape_env)
        return self._converted[expr]

    def _convert(self, expr: sympy.Expr, shape_env: object) -> Index:
        if expr.is_Integer:
            return to_index(int(expr))
        if isinstance(expr, sympy.Symbol):
            return to_index(self._symbol(expr, shape_env))
        if any(a.is_Rational and not a.is_Integer for a in expr.args):
            raise Unrepresentable(str(expr))
        args = [self.from_sympy(a, shape_env) for a in expr.args]
        if isinstance(expr, sympy.Add):
            total = args[0]
            for arg in args[1:]:
                total = total + arg
            return total
        if isinstance(expr, sympy.Mul):
            return product(args)
        if isinstance(expr, sympy.Pow | getattr(torch_functions, "PowByNatural", sympy.Pow)):
            exponent = args[1].constant
            if exponent is not None and 0 <= exponent <= 8:
                return product([args[0]] * exponent)
        if isinstance(expr, QUOTIENTS):
            return args[0] // args[1]
        if isinstance(expr, REMAINDERS):
            return args[0] % args[1]
        if isinstance(expr, torch_functions.ModularIndexing):
            return (args[0] // args[1]) % args[2]
        for kinds, kind in ((MAXIMA, "max"), (MINIMA, "min")):
            if isinstance(expr, kinds):
                result = args[0]
                for arg in args[1:]:
                    result = extremum(kind, result, arg)
                return result
        raise Unrepresentable(str(expr))
