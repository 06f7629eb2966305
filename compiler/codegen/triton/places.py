"""The place of no element, for what writes kernels and for the functions that kernels import."""

from __future__ import annotations

NO_PLACE = 2**31 - 1
"""The position of no element. Every existing element wins over it."""
