"""Calls of NumPy in a graph, which Dynamo records as calls of torch's implementation of NumPy.

Dynamo wraps each function, method and operator of an array in an object that works on tensors. It
does not capture the code of such an object again. The text of a graph therefore makes the object
anew, and has Dynamo record its calls as they are.
"""

from __future__ import annotations

import operator
from importlib import import_module
from typing import Any

import torch

OF_DYNAMO = "torch._dynamo.utils"
READS_ATTRIBUTE = "numpy_attr_wrapper"
"""The function of Dynamo that reads an attribute of an array."""
MODULES = ("", "linalg.", "fft.", "random.")
"""The modules of NumPy that torch has."""


def recorded_call(target: Any) -> str:
    """Return Python that makes the target of a call of NumPy; empty for other targets.

    It is empty too for a function of NumPy that has no name in torch. It may use `operator`.
    """
    if getattr(target, "__module__", "") != OF_DYNAMO:
        return ""
    match type(target).__name__:
        case "numpy_to_tensor_wrapper":
            given = _function(target.f)
        case "numpy_method_wrapper":
            given = repr(target.method)
        case "numpy_operator_wrapper":
            name = target.op.__name__
            given = f"operator.{name}" if getattr(operator, name, None) is target.op else ""
        case _:
            is_reader = getattr(target, "__name__", "") == READS_ATTRIBUTE
            return _allowed(f"{OF_DYNAMO}.{READS_ATTRIBUTE}") if is_reader else ""
    return _allowed(f"{OF_DYNAMO}.{type(target).__name__}({given})") if given else ""


def recorded_again(call: str) -> Any:
    """Return the target of a call of NumPy, as `recorded_call` has written it."""
    for module in (OF_DYNAMO, "torch._numpy"):
        import_module(module)
    return eval(call, {"torch": torch, "operator": operator})


def _allowed(target: str) -> str:
    return f"torch.compiler.allow_in_graph({target})"


def _function(function: Any) -> str:
    """Return the name of a function of torch's NumPy; empty if it has none."""
    name = getattr(function, "__name__", "")
    for module in MODULES:
        try:
            if operator.attrgetter(module + name)(torch._numpy) is function:
                return f"torch._numpy.{module}{name}"
        except AttributeError:
            continue
    return ""
