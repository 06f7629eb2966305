"""Every operator of torch's database (OpInfo), at realistic sizes.

The database makes its samples from a few sizes, S to L, which are small. Here they are larger, and
the sample with the most elements is measured.
"""

from __future__ import annotations

import importlib.util
import sys
import unittest
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from itertools import islice
from types import ModuleType
from typing import Any

from programs.program import Made, Place, Program, in_both_directions, tensors

DATABASE = "torch.testing._internal.common_methods_invocations"
OPINFO = "torch.testing._internal.opinfo"
WITH_SIZES = (
    DATABASE,
    f"{OPINFO}.core",
    f"{OPINFO}.definitions.linalg",
    f"{OPINFO}.definitions.special",
)
SIZES = {"cpu": {"S": 64, "M": 128, "L": 512}, "cuda": {"S": 160, "M": 256, "L": 2048}}
MOST_ELEMENTS = {"cpu": 1 << 22, "cuda": 1 << 25}
SAMPLES = 12
"""The samples of an operator that are looked at."""


@contextmanager
def _sizes(device: str) -> Iterator[None]:
    """The database with larger sizes."""
    places = [importlib.import_module(name) for name in WITH_SIZES]
    before = [
        (place, name, getattr(place, name))
        for place in places
        for name in SIZES[device]
        if hasattr(place, name)
    ]
    for place, name, _ in before:
        setattr(place, name, SIZES[device][name])
    try:
        yield
    finally:
        for place, name, value in before:
            setattr(place, name, value)


@cache
def _database() -> dict[str, Any]:
    if importlib.util.find_spec("expecttest") is None:  # the database needs only its base class
        stand_in: Any = ModuleType("expecttest")
        stand_in.TestCase = unittest.TestCase
        sys.modules["expecttest"] = stand_in
    operators = importlib.import_module(DATABASE).op_db
    return {f"{op.name}.{op.variant_test_name}".rstrip("."): op for op in operators}


def _largest(op: Any, place: Place, gradients: bool) -> Any:
    found: list[tuple[int, Any]] = []
    with _sizes(place.device):
        samples = op.sample_inputs(place.device, place.dtype, requires_grad=gradients)
        for sample in islice(samples, SAMPLES):
            given = tensors((sample.input, sample.args, sample.kwargs))
            count = sum(t.numel() for t in given)
            if count <= MOST_ELEMENTS[place.device]:
                found.append((count, sample))
    if not found:
        raise ValueError("no sample is small enough")
    return max(found, key=lambda pair: pair[0])[1]


def _made(name: str, place: Place, gradients: bool) -> Made:
    op = _database()[name]
    dtypes = op.supported_backward_dtypes if gradients else op.supported_dtypes
    if place.dtype not in dtypes(place.device) or (gradients and not op.supports_autograd):
        raise ValueError(f"{place.dtype} is not supported")
    sample = _largest(op, place, gradients)
    given = (sample.input, *sample.args)
    leaves = [t for t in tensors((given, sample.kwargs)) if t.requires_grad] if gradients else []

    def function(*given: Any, **keywords: Any) -> Any:
        result = op.op(*given, **keywords)
        return sample.output_process_fn_grad(result) if gradients else result

    return Made(function, given, tuple(leaves), tuple(sample.kwargs.items()))


def programs(place: Place) -> Iterator[Program]:
    """All operators: forward and backward, in all `DTYPES`."""
    yield from in_both_directions("operators", sorted(_database()), _made, place)
